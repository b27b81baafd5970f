{{- define "weir.args" -}}
- serve
- --data=/var/lib/weir
{{- if .Values.cells.shared.enabled }}
- --cells=/run/weir/cells
{{- else }}
- --cells-memory=/run/weir
{{- end }}
- --cells-keys={{ int64 .Values.cells.keys }}
- {{ printf "--rules=%s" (include "weir.rules" .) | quote }}
{{- if .Values.store.address }}
- {{ printf "--counters=%s" (include "weir.store" .) | quote }}
- --store-deadline={{ .Values.store.deadline }}
- --hosts={{ int .Values.store.hosts }}
{{- end }}
{{- $listen := .Values.listenAddress }}
- {{ printf "--http=%s:%d" $listen (int .Values.ports.http) | quote }}
- {{ printf "--resp=%s:%d" $listen (int .Values.ports.resp) | quote }}
{{- if .Values.ports.grpc }}
- {{ printf "--grpc=%s:%d" $listen (int .Values.ports.grpc) | quote }}
{{- end }}
- {{ printf "--admin=%s:%d" $listen (int .Values.ports.admin) | quote }}
- {{ printf "--admin-hosts=%s" (include "weir.adminHosts" .) | quote }}
- --tokens=/etc/weir/tokens/tokens
{{- if .Values.tokens.requireForDecisions }}
- --require-token=yes
{{- end }}
{{- if .Values.tls.secretName }}
- --certificate=/etc/weir/tls/tls.crt
- --certificate-key=/etc/weir/tls/tls.key
{{- if not .Values.tls.admin }}
- --admin-tls=no
{{- end }}
{{- if .Values.tls.clientAuthorities.name }}
- --client-authorities=/etc/weir/client-authorities/ca.crt
{{- end }}
{{- if .Values.tls.requireClientCertificates }}
- --http-tls=clients
- --resp-tls=clients
{{- if .Values.ports.grpc }}
- --grpc-tls=clients
{{- end }}
{{- end }}
{{- end }}
- --drain={{ int .Values.drainSeconds }}s
- --log={{ .Values.logFormat }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "weir.secretFile" -}}
{{- /* (dict "volume" NAME "secret" NAME "key" KEY "path" FILE): a volume with one file */ -}}
- name: {{ .volume }}
  secret:
    secretName: {{ .secret | quote }}
    defaultMode: 0440
    items: [ { key: {{ .key | quote }}, path: {{ .path }} } ]
{{- end }}

{{- define "weir.volumes" -}}
{{- if .Values.data.existingClaim }}
- name: data
  persistentVolumeClaim: { claimName: {{ .Values.data.existingClaim | quote }} }
{{- else }}
- name: data
  emptyDir: { sizeLimit: {{ .Values.data.sizeLimit }} }
{{- end }}
{{- if .Values.cells.shared.enabled }}
- name: cells
  hostPath: { path: {{ .Values.cells.shared.hostPath | quote }}, type: DirectoryOrCreate }
{{- else }}
- name: cells
  emptyDir: { medium: Memory, sizeLimit: {{ .Values.cells.sizeLimit }} }
{{- end }}
{{- if not .Values.rules.database.address }}
- name: rules
  configMap: { name: {{ .Values.rules.existingConfigMap | default (printf "%s-rules" (include "weir.name" .)) | quote }} }
{{- end }}
{{ include "weir.secretFile" (dict "volume" "tokens" "secret" (include "weir.tokens" .) "key" "tokens" "path" "tokens") }}
{{- with .Values.store.passwordSecret }}{{ if and .name $.Values.store.address }}
{{ include "weir.secretFile" (dict "volume" "store-password" "secret" .name "key" .key "path" "password") }}
{{- end }}{{ end }}
{{- with .Values.store.caSecret }}{{ if and .name $.Values.store.address }}
{{ include "weir.secretFile" (dict "volume" "store-ca" "secret" .name "key" .key "path" "ca.crt") }}
{{- end }}{{ end }}
{{- with .Values.rules.database }}{{ if and .address .passwordSecret.name }}
{{ include "weir.secretFile" (dict "volume" "database-password" "secret" .passwordSecret.name "key" .passwordSecret.key "path" "password") }}
{{- end }}{{ end }}
{{- if .Values.tls.secretName }}
- name: tls
  secret: { secretName: {{ .Values.tls.secretName | quote }}, defaultMode: 0440 }
{{- with .Values.tls.clientAuthorities }}{{ if .name }}
{{ include "weir.secretFile" (dict "volume" "client-authorities" "secret" .name "key" .key "path" "ca.crt") }}
{{- end }}{{ end }}
{{- end }}
{{- end }}

{{- define "weir.probe" -}}
{{- /* (list ROOT PATH) */ -}}
{{- $root := index . 0 -}}
httpGet: { path: {{ index . 1 }}, port: admin, scheme: {{ include "weir.adminTls" $root | eq "yes" | ternary "HTTPS" "HTTP" }} }
{{- end }}

{{- define "weir.pod" -}}
{{- include "weir.check" . }}
metadata:
  labels:
    {{- include "weir.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.podAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "weir.account" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add .Values.preStopSeconds .Values.drainSeconds .Values.saveSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- if and .Values.cells.shared.enabled .Values.cells.shared.prepare }}
  initContainers:
    # kubelet creates the folder of a hostPath for root, and fsGroup does not change it.
    - name: prepare
      image: {{ include "weir.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [install, -d, -o, "10001", -g, "10001", -m, "2770", /run/weir]
      securityContext:
        runAsNonRoot: false
        runAsUser: 0
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL], add: [CHOWN, FOWNER, FSETID, DAC_OVERRIDE] }
      volumeMounts: [ { name: cells, mountPath: /run/weir } ]
  {{- end }}
  containers:
    - name: weir
      image: {{ include "weir.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: {{ include "weir.args" . | nindent 8 }}
      ports:
        - { name: http, containerPort: {{ int .Values.ports.http }} }
        - { name: resp, containerPort: {{ int .Values.ports.resp }} }
        {{- if .Values.ports.grpc }}
        - { name: grpc, containerPort: {{ int .Values.ports.grpc }} }
        {{- end }}
        - { name: admin, containerPort: {{ int .Values.ports.admin }} }
      # Reading back a large table takes time.
      startupProbe:
        {{- include "weir.probe" (list . "/healthz") | nindent 8 }}
        periodSeconds: 1
        failureThreshold: 120
      # The event loop answers. A store or a database that is down is no reason to restart.
      livenessProbe:
        {{- include "weir.probe" (list . "/healthz") | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      # The rules are read, and the service does not stop.
      readinessProbe:
        {{- include "weir.probe" (list . "/readyz") | nindent 8 }}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      lifecycle:
        preStop:
          exec: { command: [sleep, {{ int .Values.preStopSeconds | quote }}] }
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      resources: {{ toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - { name: data, mountPath: /var/lib/weir }
        - { name: cells, mountPath: /run/weir }
        {{- if not .Values.rules.database.address }}
        - { name: rules, mountPath: /etc/weir/rules, readOnly: true }
        {{- end }}
        - { name: tokens, mountPath: /etc/weir/tokens, readOnly: true }
        {{- if and .Values.store.address .Values.store.passwordSecret.name }}
        - { name: store-password, mountPath: /etc/weir/store-password, readOnly: true }
        {{- end }}
        {{- if and .Values.store.address .Values.store.caSecret.name }}
        - { name: store-ca, mountPath: /etc/weir/store-ca, readOnly: true }
        {{- end }}
        {{- if and .Values.rules.database.address .Values.rules.database.passwordSecret.name }}
        - { name: database-password, mountPath: /etc/weir/database-password, readOnly: true }
        {{- end }}
        {{- if .Values.tls.secretName }}
        - { name: tls, mountPath: /etc/weir/tls, readOnly: true }
        {{- if .Values.tls.clientAuthorities.name }}
        - { name: client-authorities, mountPath: /etc/weir/client-authorities, readOnly: true }
        {{- end }}
        {{- end }}
  volumes: {{ include "weir.volumes" . | nindent 4 }}
  {{- range $name := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $.Values $name }}
  {{ $name }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end }}

{{- define "weir.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}
