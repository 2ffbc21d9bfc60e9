{{- /* What a schema can't say. Each message says what to do. */ -}}
{{- define "nudge.check" -}}
{{- if ne .Release.Namespace "nudge-system" -}}
{{- fail (printf "the namespace is %s, and Nudge runs in nudge-system only: add --namespace nudge-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- $server := .Capabilities.KubeVersion.Version -}}
{{- if and .Values.admissionPolicies (semverCompare "<1.30.0-0" $server) -}}
{{- fail (printf "admissionPolicies needs Kubernetes 1.30 or newer, and the server has %s: set admissionPolicies=false" $server) -}}
{{- end -}}
{{- if and .Values.disruptionBudget (semverCompare "<1.21.0-0" $server) -}}
{{- fail (printf "disruptionBudget needs Kubernetes 1.21 or newer, and the server has %s: set disruptionBudget=false" $server) -}}
{{- end -}}
{{- if and .Values.allNamespaces (not .Values.admissionPolicies) -}}
{{- fail "allNamespaces needs the policies: set admissionPolicies=true" -}}
{{- end -}}
{{- if .Values.singleReplica -}}
{{- range list "certManager" "allNamespaces" "sources" "analysis" -}}
{{- if get $.Values . -}}
{{- fail (printf "singleReplica can't be had together with %s: set one of them to false" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
