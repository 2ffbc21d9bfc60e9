{{- define "nudge.deployment" -}}
{{- $values := .top.Values -}}
{{- $spec := .object.spec -}}
{{- $pod := $spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $roles := dict "nudge-injector" $values.control "nudge-hub" $values.hub "nudge-certs" $values.certs "nudge-sources" $values.sourcesRole "nudge-analysis" $values.analysisRole -}}
{{- $role := get $roles .object.metadata.name -}}
{{- $image := ternary "nudge-sources" "nudge-injector" (eq .object.metadata.name "nudge-sources") -}}
{{- $_ := set $container "image" (include "nudge.image" (dict "name" $image "top" .top)) -}}
{{- $env := dict -}}
{{- if eq .object.metadata.name "nudge-injector" -}}
{{- $_ := set $env "NUDGE_AGENT_IMAGE" (include "nudge.image" (dict "name" "nudge-agent" "top" .top)) -}}
{{- $_ := set $env "NUDGE_AGENT_KILL_IMAGE" (include "nudge.image" (dict "name" "nudge-agent-kill" "top" .top)) -}}
{{- $_ := set $env "NUDGE_IMAGE_PULL_SECRETS" (join "," $values.images.agentPullSecrets) -}}
{{- if ne $values.unknownKeys "refuse" }}{{ $_ := set $env "NUDGE_UNKNOWN_KEYS" $values.unknownKeys }}{{ end -}}
{{- end -}}
{{- if and $values.allNamespaces (has .object.metadata.name (list "nudge-injector" "nudge-hub" "nudge-sources")) -}}
{{- $_ := set $env "NUDGE_ALL_NAMESPACES" "true" -}}
{{- end -}}
{{- if has .object.metadata.name (list "nudge-injector" "nudge-hub") -}}
{{- if or $values.allNamespaces $values.clusterReads }}{{ $_ := set $env "NUDGE_READS" "cluster" }}{{ end -}}
{{- end -}}
{{- $without := list -}}
{{- if $values.singleReplica -}}
{{- $_ := set $container "args" (list "serve") -}}
{{- $_ := set $container "ports" (prepend $container.ports (dict "name" "hub" "protocol" "TCP" "containerPort" 9443)) -}}
{{- $without = list "NUDGE_CERTIFICATE_DIR" "NUDGE_CONTENT_KEY_DIR" "serving" "content-key" -}}
{{- range list "affinity" "topologySpreadConstraints" }}{{ $_ := unset $pod . }}{{ end -}}
{{- end -}}
{{- range $name, $value := $role.env }}{{ $_ := set $env $name $value }}{{ end -}}
{{- include "nudge.env" (dict "container" $container "env" $env) -}}
{{- include "nudge.drop" (dict "of" $container "list" "env" "names" $without) -}}
{{- include "nudge.drop" (dict "of" $container "list" "volumeMounts" "names" $without) -}}
{{- include "nudge.drop" (dict "of" $pod "list" "volumes" "names" $without) -}}
{{- with $role.replicas }}{{ $_ := set $spec "replicas" (int .) }}{{ end -}}
{{- if $values.singleReplica }}{{ $_ := set $spec "replicas" 1 }}{{ end -}}
{{- with $role.resources }}{{ $_ := set $container "resources" (mergeOverwrite $container.resources .) }}{{ end -}}
{{- with $role.nodeSelector }}{{ $_ := set $pod "nodeSelector" (merge (deepCopy .) $pod.nodeSelector) }}{{ end -}}
{{- with $role.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end -}}
{{- with $values.images.pullSecrets -}}
{{- $secrets := list -}}
{{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- end -}}

{{- /* The image of a name: {name, top}. */ -}}
{{- define "nudge.image" -}}
{{- $images := .top.Values.images -}}
{{- $tag := printf ":%s" (default .top.Chart.AppVersion $images.tag) -}}
{{- with get $images.digests .name }}{{ $tag = printf "@%s" . }}{{ end -}}
{{- with $images.registry }}{{ . }}/{{ end }}{{ .name }}{{ $tag -}}
{{- end -}}

{{- /* Sets variables of a container: {container, env}. */ -}}
{{- define "nudge.env" -}}
{{- $all := list -}}
{{- range .container.env }}{{ if not (hasKey $.env .name) }}{{ $all = append $all . }}{{ end }}{{ end -}}
{{- range $name, $value := .env }}{{ $all = append $all (dict "name" $name "value" $value) }}{{ end -}}
{{- $_ := set .container "env" $all -}}
{{- end -}}

{{- /* Leaves what has these names out of a list: {of, list, names}. */ -}}
{{- define "nudge.drop" -}}
{{- $rest := list -}}
{{- range get .of .list }}{{ if not (has .name $.names) }}{{ $rest = append $rest . }}{{ end }}{{ end -}}
{{- $_ := set .of .list $rest -}}
{{- end -}}
