{{- /* Made by scripts/make_chart.py; a test compares it with `lictor install`. */}}
{{- define "lictor.flag-values" -}}
{{- $_ := set .values "admissionReports" .root.Values.features.admissionReports.enabled }}
{{- $_ := set .usual "admissionReports" "true" }}
{{- $_ := set .values "aggregateReports" .root.Values.features.aggregateReports.enabled }}
{{- $_ := set .usual "aggregateReports" "true" }}
{{- $_ := set .values "allowInsecureRegistry" .root.Values.features.registryClient.allowInsecure }}
{{- $_ := set .usual "allowInsecureRegistry" "false" }}
{{- $_ := set .values "apiCallTimeout" .root.Values.features.globalContext.apiCallTimeout }}
{{- $_ := set .usual "apiCallTimeout" "30s" }}
{{- $_ := set .values "autoUpdateWebhooks" .root.Values.features.autoUpdateWebhooks.enabled }}
{{- $_ := set .usual "autoUpdateWebhooks" "true" }}
{{- $_ := set .values "backgroundScan" .root.Values.features.backgroundScan.enabled }}
{{- $_ := set .usual "backgroundScan" "true" }}
{{- $_ := set .values "backgroundScanInterval" .root.Values.features.backgroundScan.backgroundScanInterval }}
{{- $_ := set .usual "backgroundScanInterval" "1h" }}
{{- $_ := set .values "caSecretName" .root.Values.admissionController.caSecretName }}
{{- $_ := set .usual "caSecretName" "" }}
{{- $_ := set .values "deprecationWarnings" .root.Values.features.deprecationWarnings.enabled }}
{{- $_ := set .usual "deprecationWarnings" "true" }}
{{- $_ := set .values "disableMetrics" .controller.metering.disabled }}
{{- $_ := set .usual "disableMetrics" "false" }}
{{- $_ := set .values "dumpPatches" .root.Values.features.dumpPatches.enabled }}
{{- $_ := set .usual "dumpPatches" "false" }}
{{- $_ := set .values "dumpPayload" .root.Values.features.dumpPayload.enabled }}
{{- $_ := set .usual "dumpPayload" "false" }}
{{- $_ := set .values "enableConfigMapCaching" .root.Values.features.configMapCaching.enabled }}
{{- $_ := set .usual "enableConfigMapCaching" "true" }}
{{- $_ := set .values "enablePolicyException" .root.Values.features.policyExceptions.enabled }}
{{- $_ := set .usual "enablePolicyException" "false" }}
{{- $_ := set .values "enableTracing" .controller.tracing.enabled }}
{{- $_ := set .usual "enableTracing" "false" }}
{{- $_ := set .values "enableTuf" .root.Values.features.tuf.enabled }}
{{- $_ := set .usual "enableTuf" "false" }}
{{- $_ := set .values "exceptionNamespace" .root.Values.features.policyExceptions.namespace }}
{{- $_ := set .usual "exceptionNamespace" "" }}
{{- $_ := set .values "forceFailurePolicyIgnore" .root.Values.features.forceFailurePolicyIgnore.enabled }}
{{- $_ := set .usual "forceFailurePolicyIgnore" "false" }}
{{- $_ := set .values "generateMutatingAdmissionPolicy" .root.Values.features.generateMutatingAdmissionPolicy.enabled }}
{{- $_ := set .usual "generateMutatingAdmissionPolicy" "false" }}
{{- $_ := set .values "generateValidatingAdmissionPolicy" .root.Values.features.generateValidatingAdmissionPolicy.enabled }}
{{- $_ := set .usual "generateValidatingAdmissionPolicy" "true" }}
{{- $_ := set .values "imagePullSecrets" .root.Values.existingImagePullSecrets }}
{{- $_ := set .usual "imagePullSecrets" "" }}
{{- $_ := set .values "loggingFormat" .root.Values.features.logging.format }}
{{- $_ := set .usual "loggingFormat" "text" }}
{{- $_ := set .values "maxAPICallResponseLength" .root.Values.features.globalContext.maxApiCallResponseLength }}
{{- $_ := set .usual "maxAPICallResponseLength" "10000000" }}
{{- $_ := set .values "maxAdmissionReports" .root.Values.admissionController.featuresOverride.admissionReports.backPressureThreshold }}
{{- $_ := set .usual "maxAdmissionReports" "10000" }}
{{- $_ := set .values "maxGlobalContextEntries" .root.Values.features.globalContext.maxGlobalContextEntries }}
{{- $_ := set .usual "maxGlobalContextEntries" "0" }}
{{- $_ := set .values "metricsPort" .controller.metering.port }}
{{- $_ := set .usual "metricsPort" "8000" }}
{{- $_ := set .values "mutatingAdmissionPolicyReports" .root.Values.features.mutatingAdmissionPolicyReports.enabled }}
{{- $_ := set .usual "mutatingAdmissionPolicyReports" "false" }}
{{- $_ := set .values "omitEvents" .root.Values.features.omitEvents.eventTypes }}
{{- $_ := set .usual "omitEvents" "" }}
{{- $_ := set .values "openreportsEnabled" .root.Values.openreports.enabled }}
{{- $_ := set .usual "openreportsEnabled" "false" }}
{{- $_ := set .values "policyReports" .root.Values.features.policyReports.enabled }}
{{- $_ := set .usual "policyReports" "true" }}
{{- $_ := set .values "protectManagedResources" .root.Values.features.protectManagedResources.enabled }}
{{- $_ := set .usual "protectManagedResources" "false" }}
{{- $_ := set .values "registryCredentialHelpers" .root.Values.features.registryClient.credentialHelpers }}
{{- $_ := set .usual "registryCredentialHelpers" "default,google,amazon,azure,github" }}
{{- $_ := set .values "skipResourceFilters" .root.Values.features.backgroundScan.skipResourceFilters }}
{{- $_ := set .usual "skipResourceFilters" "true" }}
{{- $_ := set .values "tlsKeyAlgorithm" .root.Values.admissionController.tlsKeyAlgorithm }}
{{- $_ := set .usual "tlsKeyAlgorithm" "RSA" }}
{{- $_ := set .values "tlsSecretName" .root.Values.admissionController.tlsSecretName }}
{{- $_ := set .usual "tlsSecretName" "" }}
{{- $_ := set .values "tracingAddress" .controller.tracing.address }}
{{- $_ := set .usual "tracingAddress" "" }}
{{- $_ := set .values "tracingCreds" .controller.tracing.creds }}
{{- $_ := set .usual "tracingCreds" "" }}
{{- $_ := set .values "tracingPort" .controller.tracing.port }}
{{- $_ := set .usual "tracingPort" "4317" }}
{{- $_ := set .values "ttlReconciliationInterval" .root.Values.features.ttlController.reconciliationInterval }}
{{- $_ := set .usual "ttlReconciliationInterval" "1m" }}
{{- $_ := set .values "tufMirror" .root.Values.features.tuf.mirror }}
{{- $_ := set .usual "tufMirror" "" }}
{{- $_ := set .values "tufRoot" .root.Values.features.tuf.root }}
{{- $_ := set .usual "tufRoot" "" }}
{{- $_ := set .values "tufRootRaw" .root.Values.features.tuf.rootRaw }}
{{- $_ := set .usual "tufRootRaw" "" }}
{{- $_ := set .values "v" .root.Values.features.logging.verbosity }}
{{- $_ := set .usual "v" "2" }}
{{- $_ := set .values "validatingAdmissionPolicyReports" .root.Values.features.validatingAdmissionPolicyReports.enabled }}
{{- $_ := set .usual "validatingAdmissionPolicyReports" "true" }}
{{- $_ := set .values "webhookServerPort" .root.Values.admissionController.webhookServer.port }}
{{- $_ := set .usual "webhookServerPort" "9443" }}
{{- $_ := set . "reported" (list "validate" "mutate" "mutateExisting" "generate" "imageVerify") }}
{{- $_ := set .usual "resyncPeriod" "15m" }}
{{- end -}}
{{- define "lictor.own-filters" -}}
[ClusterRole,*,{{ include "lictor.fullname" . }}:admission-controller]
[ClusterRole,*,{{ include "lictor.fullname" . }}:admission-controller:core]
[ClusterRole,*,{{ include "lictor.fullname" . }}:background-controller]
[ClusterRole,*,{{ include "lictor.fullname" . }}:background-controller:core]
[ClusterRole,*,{{ include "lictor.fullname" . }}:reports-controller]
[ClusterRole,*,{{ include "lictor.fullname" . }}:reports-controller:core]
[ClusterRole,*,{{ include "lictor.fullname" . }}:cleanup-controller]
[ClusterRole,*,{{ include "lictor.fullname" . }}:cleanup-controller:core]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:admission-controller]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:admission-controller:view]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:background-controller]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:background-controller:view]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:reports-controller]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:reports-controller:view]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:cleanup-controller]
[ClusterRoleBinding,*,{{ include "lictor.fullname" . }}:cleanup-controller:view]
{{- end -}}
