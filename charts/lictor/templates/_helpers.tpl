{{- /* What `lictor install` computes in Python (cluster/manifests), computed here in the same way. */}}

{{- /* What the names of all objects begin with: --prefix of `lictor install`. */}}
{{- define "lictor.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 33 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 33 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lictor.namespace" -}}
{{- $namespace := .Values.namespaceOverride | default .Release.Namespace -}}
{{- if has $namespace (list "default" "kube-system" "kube-public" "kube-node-lease") -}}
{{- fail (printf "namespace %s: choose one that is lictor's own (--namespace lictor --create-namespace)" $namespace) -}}
{{- end -}}
{{- $namespace -}}
{{- end -}}

{{- define "lictor.image" -}}
{{- $image := .Values.image -}}
{{- $registry := $image.registry | default .Values.global.image.registry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- /* The ServiceAccount of a controller: (list . "background"). In one Deployment there is only one. */}}
{{- define "lictor.account" -}}
{{- $root := index . 0 -}}
{{- $controller := ternary "admission" (index . 1) $root.Values.allInOne.enabled -}}
{{- $values := index $root.Values (printf "%sController" $controller) -}}
{{- $values.rbac.serviceAccount.name | default (printf "%s-%s-controller" (include "lictor.fullname" $root) $controller) -}}
{{- end -}}

{{- define "lictor.authority" -}}
{{- $name := include "lictor.fullname" . -}}
{{- .Values.admissionController.caSecretName | default (printf "%s-svc.%s.svc.%s-tls-ca" $name (include "lictor.namespace" .) $name) -}}
{{- end -}}

{{- define "lictor.serving" -}}
{{- $name := include "lictor.fullname" . -}}
{{- .Values.admissionController.tlsSecretName | default (printf "%s-svc.%s.svc.%s-tls-pair" $name (include "lictor.namespace" .) $name) -}}
{{- end -}}

{{- /* Labels of an object: those of the values, then ours, which selectors use and which win. */}}
{{- define "lictor.labels" -}}
{{- $name := include "lictor.fullname" .root -}}
{{- $labels := dict -}}
{{- range .theirs -}}{{- range $key, $text := . -}}{{- $_ := set $labels $key $text -}}{{- end -}}{{- end -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" $name -}}
{{- $_ := set $labels "app.kubernetes.io/instance" $name -}}
{{- $_ := set $labels "app.kubernetes.io/component" .component -}}
{{- $_ := set $labels "app.kubernetes.io/name" (printf "%s-%s" $name .component) -}}
{{- $_ := set $labels "app.kubernetes.io/version" .root.Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- toYaml $labels -}}
{{- end -}}

{{- /* A value as a flag or a setting has it; large numbers without an exponent. */}}
{{- define "lictor.text" -}}
{{- if kindIs "slice" . -}}
{{- $texts := list -}}
{{- range . -}}{{- $texts = append $texts (include "lictor.text" .) -}}{{- end -}}
{{- join "," $texts -}}
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{- int64 . -}}{{- else -}}{{- . -}}{{- end -}}
{{- else if not (kindIs "invalid" .) -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{- /* The command line of a container. A flag is given only where it is not the program's own default. */}}
{{- define "lictor.arguments" -}}
{{- $root := .root -}}
{{- $table := dict "root" $root "controller" .controller "values" dict "usual" dict -}}
{{- include "lictor.flag-values" $table -}}
{{- $flags := dict -}}
{{- range $name, $value := $table.values -}}
{{- $text := include "lictor.text" $value -}}
{{- if and $text (ne $text (get $table.usual $name)) -}}{{- $_ := set $flags $name $text -}}{{- end -}}
{{- end -}}
{{- $reported := list -}}
{{- range $table.reported -}}
{{- if index $root.Values.features.reporting . -}}{{- $reported = append $reported . -}}{{- end -}}
{{- end -}}
{{- if lt (len $reported) (len $table.reported) -}}
{{- $_ := set $flags "enableReporting" (join "," $reported | default "none") -}}
{{- end -}}
{{- $period := .controller.resyncPeriod | default $root.Values.global.resyncPeriod -}}
{{- if ne $period $table.usual.resyncPeriod -}}{{- $_ := set $flags "resyncPeriod" $period -}}{{- end -}}
{{- range list "background" "reports" "cleanup" -}}
{{- $user := printf "system:serviceaccount:%s:%s" (include "lictor.namespace" $root) (include "lictor.account" (list $root .)) -}}
{{- $_ := set $flags (printf "%sServiceAccountName" .) $user -}}
{{- end -}}
{{- range $name, $value := .container.extraArgs -}}
{{- $text := include "lictor.text" $value -}}
{{- if $text -}}{{- $_ := set $flags $name $text -}}{{- else -}}{{- $_ := unset $flags $name -}}{{- end -}}
{{- end -}}
{{- range $name, $value := .own -}}{{- $_ := set $flags $name (include "lictor.text" $value) -}}{{- end -}}
{{- $words := .command -}}
{{- $words = append $words (printf "--namespace=%s" (include "lictor.namespace" $root)) -}}
{{- $words = append $words (printf "--prefix=%s" (include "lictor.fullname" $root)) -}}
{{- range $name, $text := $flags -}}{{- $words = append $words (printf "--%s=%s" $name $text) -}}{{- end -}}
{{- toYaml $words -}}
{{- end -}}

{{- /* What no policy concerns, our own objects among it. */}}
{{- define "lictor.filters" -}}
{{- $config := .Values.config -}}
{{- $filters := list -}}
{{- if $config.excludeKyvernoNamespace -}}
{{- $filters = append $filters (printf "[*/*,%s,*]" (include "lictor.namespace" .)) -}}
{{- end -}}
{{- range $filter := $config.resourceFilters -}}
{{- $out := has $filter ($config.resourceFiltersExclude | default list) -}}
{{- range $config.resourceFiltersExcludeNamespaces -}}
{{- if contains (printf ",%s," .) $filter -}}{{- $out = true -}}{{- end -}}
{{- end -}}
{{- if not $out -}}{{- $filters = append $filters $filter -}}{{- end -}}
{{- end -}}
{{- $filters = concat $filters (splitList "\n" (include "lictor.own-filters" . | trim)) -}}
{{- range $config.resourceFiltersInclude -}}{{- $filters = append $filters . -}}{{- end -}}
{{- range $config.resourceFiltersIncludeNamespaces -}}
{{- $filters = append $filters (printf "[*/*,%s,*]" .) -}}
{{- end -}}
{{- join " " $filters -}}
{{- end -}}

{{- /* The ConfigMap with the settings. */}}
{{- define "lictor.settings" -}}
{{- $config := .Values.config -}}
{{- $entries := dict "resourceFilters" (include "lictor.filters" .) -}}
{{- range list "defaultRegistry" "enableDefaultRegistryMutation" "excludeGroups" "excludeUsernames" "excludeRoles" "excludeClusterRoles" "generateSuccessEvents" "successEventActions" "maxContextSize" "updateRequestThreshold" -}}
{{- $_ := set $entries . (include "lictor.text" (get $config .)) -}}
{{- end -}}
{{- /* Requests about our own namespace never come to us: else we could not come back. */}}
{{- $ours := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list (include "lictor.namespace" .)) -}}
{{- $selector := deepCopy ($config.webhooks.namespaceSelector | default dict) -}}
{{- $_ := set $selector "matchExpressions" (append ($selector.matchExpressions | default list) $ours) -}}
{{- $webhooks := dict "namespaceSelector" $selector -}}
{{- with $config.webhooks.objectSelector -}}{{- $_ := set $webhooks "objectSelector" . -}}{{- end -}}
{{- $_ := set $entries "webhooks" (toRawJson $webhooks) -}}
{{- range $name := list "webhookAnnotations" "webhookLabels" "matchConditions" -}}
{{- with get $config $name -}}{{- $_ := set $entries $name (toRawJson .) -}}{{- end -}}
{{- end -}}
{{- include "lictor.entries" (dict "entries" $entries "given" ($config.settings | default dict)) -}}
{{- end -}}

{{- /* The ConfigMap that says what is measured. */}}
{{- define "lictor.metrics-settings" -}}
{{- $metrics := .Values.metricsConfig -}}
{{- $namespaces := dict "exclude" ($metrics.namespaces.exclude | default list) "include" ($metrics.namespaces.include | default list) -}}
{{- $entries := dict "namespaces" (toRawJson $namespaces) -}}
{{- $_ := set $entries "bucketBoundaries" (include "lictor.text" $metrics.bucketBoundaries | replace "," ", ") -}}
{{- with $metrics.metricsExposure -}}{{- $_ := set $entries "metricsExposure" (toRawJson .) -}}{{- end -}}
{{- with $metrics.metricsRefreshInterval -}}{{- $_ := set $entries "metricsRefreshInterval" . -}}{{- end -}}
{{- include "lictor.entries" (dict "entries" $entries "given" dict) -}}
{{- end -}}

{{- /* Entries of a ConfigMap, and those that were given as they stand; empty ones are left out. */}}
{{- define "lictor.entries" -}}
{{- $whole := dict -}}
{{- range $name, $text := .entries -}}{{- if $text -}}{{- $_ := set $whole $name $text -}}{{- end -}}{{- end -}}
{{- range $name, $value := .given -}}
{{- $text := include "lictor.text" $value -}}
{{- if $text -}}{{- $_ := set $whole $name $text -}}{{- else -}}{{- $_ := unset $whole $name -}}{{- end -}}
{{- end -}}
{{- toYaml $whole -}}
{{- end -}}
