"""Keeps Kubewarden's PolicyServers running, and the webhooks of the policies that they evaluate."""
