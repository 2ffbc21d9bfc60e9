{{- /* Changes an object of the base or of a component in place, by the values: {object, top}. */ -}}
{{- define "nudge.change" -}}
{{- $object := .object -}}
{{- $values := .top.Values -}}
{{- $name := $object.metadata.name -}}
{{- $title := printf "%s/%s" $object.kind $name -}}
{{- $kept := list "Secret/nudge-authority" "Secret/nudge-content-key" -}}
{{- if and $values.keep (or (eq $object.kind "CustomResourceDefinition") (has $title $kept)) -}}
{{- include "nudge.annotate" (dict "object" $object "name" "helm.sh/resource-policy" "value" "keep") -}}
{{- end -}}
{{- if eq $object.kind "Deployment" -}}
{{- include "nudge.deployment" . -}}
{{- else if hasSuffix "WebhookConfiguration" $object.kind -}}
{{- include "nudge.webhooks" . -}}
{{- else if and (eq $object.kind "ValidatingAdmissionPolicy") $values.allNamespaces -}}
{{- /* Without one it is about every namespace anyway. */ -}}
{{- if $object.spec.matchConstraints.namespaceSelector -}}
{{- $selector := .top.Files.Get "components/all-namespaces/selector.yaml" | fromYaml -}}
{{- $_ := set $object.spec.matchConstraints "namespaceSelector" $selector.namespaceSelector -}}
{{- end -}}
{{- end -}}
{{- if $values.singleReplica -}}
{{- if eq $title "Service/nudge-hub" -}}
{{- $_ := set $object.spec.selector "app.kubernetes.io/component" "injector" -}}
{{- else if eq $title "NetworkPolicy/nudge-injector" -}}
{{- $from := index $object.spec.ingress 1 -}}
{{- $_ := set $from "ports" (append $from.ports (dict "protocol" "TCP" "port" 9443)) -}}
{{- else if and (hasSuffix "RoleBinding" $object.kind) (has $name (list "nudge-hub" "nudge-certs")) -}}
{{- range $object.subjects }}{{ $_ := set . "name" "nudge-injector" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "nudge.annotate" -}}
{{- $annotations := default (dict) .object.metadata.annotations -}}
{{- $_ := set $annotations .name .value -}}
{{- $_ := set .object.metadata "annotations" $annotations -}}
{{- end -}}

{{- define "nudge.webhooks" -}}
{{- $values := .top.Values -}}
{{- range $webhook := .object.webhooks -}}
{{- /* An empty one is about every namespace anyway. */ -}}
{{- if and $values.allNamespaces $webhook.namespaceSelector -}}
{{- $selector := $.top.Files.Get "components/all-namespaces/selector.yaml" | fromYaml -}}
{{- $_ := set $webhook "namespaceSelector" $selector.namespaceSelector -}}
{{- end -}}
{{- if $values.admissionPolicies -}}
{{- range $file := list "pods-by-annotation" "namespaces-emptied" -}}
{{- $patch := $.top.Files.Get (printf "components/admission-policies/%s.yaml" $file) | fromYaml -}}
{{- range $patch.webhooks -}}
{{- if eq .name $webhook.name -}}
{{- if hasKey . "objectSelector" }}{{ $_ := unset $webhook "objectSelector" }}{{ end -}}
{{- $_ := set $webhook "matchConditions" .matchConditions -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $values.certManager -}}
{{- include "nudge.annotate" (dict "object" .object "name" "cert-manager.io/inject-ca-from" "value" "nudge-system/nudge-serving") -}}
{{- end -}}
{{- end -}}
