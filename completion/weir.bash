# Made by completion/generate.py from the options of the commands: do not edit it.
_weir_verbs() {
  case $1 in
    convert) echo 'hodor envoy' ;;
    rules) echo 'init list show throttle add set disable enable rm override history undo import export penalties penalise lift' ;;
    cells) echo 'show check resize copy' ;;
    token) echo 'add list withdraw' ;;
  esac
}

_weir_options() {
  case $1 in
    serve) echo '--config --data --rules --poll --cells --cells-memory --save --cells-keys --counters --store-deadline --hosts --http --resp --grpc --envoy-headers --envoy-charge --admin --threads --certificate --certificate-key --client-authorities --http-tls --resp-tls --grpc-tls --admin-tls --tokens --token-file --require-token --user-header --admin-hosts --connections --connections-per-address --idle --request --drain --request-bytes --header-bytes --pipeline-bytes --keep-subjects --sample --sample-values --log --log-refusals --help' ;;
    check) echo '--rules --cells --cells-keys --cells-bytes --peek --counters --hosts --method --path --host --ip --peer --user --event --key --domain --header --descriptor --cost --now --help' ;;
    explain) echo '--rules --cells --counters --hosts --method --path --host --ip --peer --user --event --key --domain --header --descriptor --cost --now --help' ;;
    lint) echo '--help' ;;
    simulate) echo '--rules --format --verdicts --json --strict --top --cells-keys --help' ;;
    convert) echo '--merge --windows --tz --help' ;;
    rules) echo '--from --json --author --note --replace --by --row --expires --for --limit --deny --unlimited --why --remove --most --change --admin --data --drop-comments --help' ;;
    sync) echo '--from --to --poll --once --start-without-rules --help' ;;
    cells) echo '--keys --bytes --drop --json --help' ;;
    token) echo '--role --data --file --help' ;;
    top) echo '--data --admin --rule --interval --most --once --help' ;;
  esac
}

# What the value of an option is: flag, file, folder, other, or the words that are allowed.
_weir_value() {
  case "$1 $2" in
    'serve --config') echo 'file' ;;
    'serve --data') echo 'folder' ;;
    'serve --rules') echo 'other' ;;
    'serve --poll') echo 'other' ;;
    'serve --cells') echo 'file' ;;
    'serve --cells-memory') echo 'folder' ;;
    'serve --save') echo 'other' ;;
    'serve --cells-keys') echo 'other' ;;
    'serve --counters') echo 'other' ;;
    'serve --store-deadline') echo 'other' ;;
    'serve --hosts') echo 'other' ;;
    'serve --http') echo 'other' ;;
    'serve --resp') echo 'other' ;;
    'serve --grpc') echo 'other' ;;
    'serve --envoy-headers') echo 'no yes' ;;
    'serve --envoy-charge') echo 'together each' ;;
    'serve --admin') echo 'other' ;;
    'serve --threads') echo 'other' ;;
    'serve --certificate') echo 'file' ;;
    'serve --certificate-key') echo 'file' ;;
    'serve --client-authorities') echo 'file' ;;
    'serve --http-tls') echo 'no yes clients' ;;
    'serve --resp-tls') echo 'no yes clients' ;;
    'serve --grpc-tls') echo 'no yes clients' ;;
    'serve --admin-tls') echo 'no yes clients' ;;
    'serve --tokens') echo 'file' ;;
    'serve --token-file') echo 'file' ;;
    'serve --require-token') echo 'no yes' ;;
    'serve --user-header') echo 'other' ;;
    'serve --admin-hosts') echo 'other' ;;
    'serve --connections') echo 'other' ;;
    'serve --connections-per-address') echo 'other' ;;
    'serve --idle') echo 'other' ;;
    'serve --request') echo 'other' ;;
    'serve --drain') echo 'other' ;;
    'serve --request-bytes') echo 'other' ;;
    'serve --header-bytes') echo 'other' ;;
    'serve --pipeline-bytes') echo 'other' ;;
    'serve --keep-subjects') echo 'no yes' ;;
    'serve --sample') echo 'other' ;;
    'serve --sample-values') echo 'hashed plain' ;;
    'serve --log') echo 'plain json' ;;
    'serve --log-refusals') echo 'other' ;;
    'check --rules') echo 'file' ;;
    'check --cells') echo 'file' ;;
    'check --cells-keys') echo 'other' ;;
    'check --cells-bytes') echo 'other' ;;
    'check --counters') echo 'other' ;;
    'check --hosts') echo 'other' ;;
    'check --method') echo 'other' ;;
    'check --path') echo 'other' ;;
    'check --host') echo 'other' ;;
    'check --ip') echo 'other' ;;
    'check --peer') echo 'other' ;;
    'check --user') echo 'other' ;;
    'check --event') echo 'other' ;;
    'check --key') echo 'other' ;;
    'check --domain') echo 'other' ;;
    'check --header') echo 'other' ;;
    'check --descriptor') echo 'other' ;;
    'check --cost') echo 'other' ;;
    'check --now') echo 'other' ;;
    'explain --rules') echo 'file' ;;
    'explain --cells') echo 'file' ;;
    'explain --counters') echo 'other' ;;
    'explain --hosts') echo 'other' ;;
    'explain --method') echo 'other' ;;
    'explain --path') echo 'other' ;;
    'explain --host') echo 'other' ;;
    'explain --ip') echo 'other' ;;
    'explain --peer') echo 'other' ;;
    'explain --user') echo 'other' ;;
    'explain --event') echo 'other' ;;
    'explain --key') echo 'other' ;;
    'explain --domain') echo 'other' ;;
    'explain --header') echo 'other' ;;
    'explain --descriptor') echo 'other' ;;
    'explain --cost') echo 'other' ;;
    'explain --now') echo 'other' ;;
    'simulate --rules') echo 'file' ;;
    'simulate --format') echo 'json combined' ;;
    'simulate --top') echo 'other' ;;
    'simulate --cells-keys') echo 'other' ;;
    'convert --windows') echo 'epoch natural' ;;
    'convert --tz') echo 'other' ;;
    'rules --from') echo 'other' ;;
    'rules --author') echo 'other' ;;
    'rules --note') echo 'other' ;;
    'rules --by') echo 'other' ;;
    'rules --expires') echo 'other' ;;
    'rules --for') echo 'other' ;;
    'rules --limit') echo 'other' ;;
    'rules --why') echo 'other' ;;
    'rules --most') echo 'other' ;;
    'rules --change') echo 'other' ;;
    'rules --admin') echo 'other' ;;
    'rules --data') echo 'folder' ;;
    'sync --from') echo 'other' ;;
    'sync --to') echo 'file' ;;
    'sync --poll') echo 'other' ;;
    'cells --keys') echo 'other' ;;
    'cells --bytes') echo 'other' ;;
    'token --role') echo 'ask read operate admin' ;;
    'token --data') echo 'folder' ;;
    'token --file') echo 'file' ;;
    'top --data') echo 'folder' ;;
    'top --admin') echo 'other' ;;
    'top --rule') echo 'other' ;;
    'top --interval') echo 'other' ;;
    'top --most') echo 'other' ;;
    *) echo flag ;;
  esac
}

# The ids of the rules of --from or $WEIR_FROM, if looking is cheap.
_weir_rule_ids() {
  local from=${WEIR_FROM-} i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} != --from ]] || from=$(IFS=; echo "${COMP_WORDS[*]:i+1:3}")
  done
  case $from in
    file:* | sqlite:*) "${COMP_WORDS[0]}" rules list --from "${from%% *}" 2>/dev/null | awk 'NR > 1 { if (!NF) exit; print $1 }' ;;
  esac
}

_weir() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} verb='' kind words='' i
  COMPREPLY=()
  if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $command = help ]]; }; then
    mapfile -t COMPREPLY < <(compgen -W 'serve check explain lint simulate convert rules sync cells token top help --help --version' -- "$current")
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} = --* ]]; then
      [[ $(_weir_value "$command" "${COMP_WORDS[i]}") = flag ]] || ((i++))
    elif [[ -z $verb ]]; then
      verb=${COMP_WORDS[i]}
    fi
  done
  kind=$(_weir_value "$command" "$previous")
  if [[ $kind = flag && $current = -* ]]; then
    words=$(_weir_options "$command")
  elif [[ $kind = flag ]]; then
    words=$(_weir_verbs "$command")
    if [[ -n $verb && -n $words ]]; then
      words=''
      [[ "$command $verb" == rules\ @(disable|enable|history|lift|override|penalise|penalties|rm|set|show|undo) ]] && kind='id'
      [[ "$command $verb" == rules\ @(add|import) || $command == @(cells|convert) ]] && kind='file'
    elif [[ $command == @(check|explain|lint|simulate|sync) ]]; then
      kind='file'
    fi
  elif [[ $kind != file && $kind != folder && $kind != other ]]; then
    words=$kind
  fi
  case $kind in
    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    # Not compgen -W: it expands its words, and an id may have $(…) in it.
    id)
      while IFS= read -r words; do
        [[ $words != "$current"* ]] || COMPREPLY+=("$(printf %q "$words")")
      done < <(_weir_rule_ids)
      ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current") ;;
  esac
}

complete -F _weir weir
