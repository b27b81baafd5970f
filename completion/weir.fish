# Made by completion/generate.py from the options of the commands: do not edit it.

function __weir_in
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]
end

function __weir_rule_ids
    set -l words (commandline -opc)
    set -l from $WEIR_FROM
    set -l at (contains -i -- --from $words); and test (count $words) -gt $at; and set from $words[(math $at + 1)]
    string match -q -r '^(file|sqlite):' -- "$from"; or return
    weir rules list --from $from 2>/dev/null | awk 'NR > 1 { if (!NF) exit; print $1 }'
end

complete -c weir -f
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top' -l help -d 'print the help'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top' -l version -d 'print the version'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a serve -d 'answer programs in any language, over HTTP and RESP'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a check -d 'decide one request; the exit status is the answer'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a explain -d 'explain how each rule treats a request; charges nothing'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a lint -d 'find every error in rules files'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a simulate -d 'replay a log against rules, to try them on yesterday'\''s traffic'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a convert -d 'turn another limiter'\''s configuration into rules'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a rules -d 'show and change the rules of a database or file'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a sync -d 'keep a rules file equal to a database'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a cells -d 'show, check, resize and copy a table of counts'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a token -d 'add and withdraw tokens of a service, which say who may do what'
complete -c weir -n 'not __fish_seen_subcommand_from serve check explain lint simulate convert rules sync cells token top help' -a top -d 'watch who is throttled by which rule of a running service'
complete -c weir -n '__fish_seen_subcommand_from help' -a 'serve check explain lint simulate convert rules sync cells token top'

# serve
complete -c weir -n '__weir_in serve' -l config -r -F -d 'a YAML file with further options'
complete -c weir -n '__weir_in serve' -l data -x -a '(__fish_complete_directories)' -d 'folder for the data of the service'
complete -c weir -n '__weir_in serve' -l rules -x -d 'where the rules are'
complete -c weir -n '__weir_in serve' -l poll -x -d 'how often the source is checked for changes'
complete -c weir -n '__weir_in serve' -l cells -r -F -d 'file with the counts'
complete -c weir -n '__weir_in serve' -l cells-memory -x -a '(__fish_complete_directories)' -d 'folder in memory for the counts'
complete -c weir -n '__weir_in serve' -l save -x -d 'how often counts in memory are saved to the data folder'
complete -c weir -n '__weir_in serve' -l cells-keys -x -d 'how many keys a new cells file has room for'
complete -c weir -n '__weir_in serve' -l counters -x -d 'Redis or Valkey server with the counters that many hosts share'
complete -c weir -n '__weir_in serve' -l store-deadline -x -d 'how long a decision waits for the store of --counters'
complete -c weir -n '__weir_in serve' -l hosts -x -d 'number of hosts that share the store'
complete -c weir -n '__weir_in serve' -l http -x -d 'where to listen for decisions over HTTP'
complete -c weir -n '__weir_in serve' -l resp -x -d 'where to listen for decisions for Redis clients'
complete -c weir -n '__weir_in serve' -l grpc -x -d 'where to listen for Envoy'\''s rate limit service'
complete -c weir -n '__weir_in serve' -l envoy-headers -x -a 'no yes' -d 'whether answers to Envoy have headers for its client'
complete -c weir -n '__weir_in serve' -l envoy-charge -x -a 'together each' -d 'whether a call of Envoy that one descriptor refuses charges the others'
complete -c weir -n '__weir_in serve' -l admin -x -d 'where to listen for administration and metrics over HTTP'
complete -c weir -n '__weir_in serve' -l threads -x -d 'number of threads for decisions'
complete -c weir -n '__weir_in serve' -l certificate -r -F -d 'PEM file with the certificate of the listeners'
complete -c weir -n '__weir_in serve' -l certificate-key -r -F -d 'PEM file with the key of the certificate'
complete -c weir -n '__weir_in serve' -l client-authorities -r -F -d 'PEM file with the authorities that sign certificates of clients'
complete -c weir -n '__weir_in serve' -l http-tls -x -a 'no yes clients' -d 'TLS of the HTTP listener'
complete -c weir -n '__weir_in serve' -l resp-tls -x -a 'no yes clients' -d 'TLS of the RESP listener'
complete -c weir -n '__weir_in serve' -l grpc-tls -x -a 'no yes clients' -d 'TLS of the gRPC listener'
complete -c weir -n '__weir_in serve' -l admin-tls -x -a 'no yes clients' -d 'TLS of the admin listener'
complete -c weir -n '__weir_in serve' -l tokens -r -F -d 'file of tokens with names and roles'
complete -c weir -n '__weir_in serve' -l token-file -r -F -d 'file with a token that clients must send for decisions'
complete -c weir -n '__weir_in serve' -l require-token -x -a 'no yes' -d 'whether clients must send a token for decisions'
complete -c weir -n '__weir_in serve' -l user-header -x -d 'header with the user'\''s id'
complete -c weir -n '__weir_in serve' -l admin-hosts -x -d 'host names that the admin listener accepts'
complete -c weir -n '__weir_in serve' -l connections -x -d 'maximum number of open connections'
complete -c weir -n '__weir_in serve' -l connections-per-address -x -d 'maximum number of open connections from one address'
complete -c weir -n '__weir_in serve' -l idle -x -d 'how long a connection may be idle between requests'
complete -c weir -n '__weir_in serve' -l request -x -d 'how long a request and its response may take'
complete -c weir -n '__weir_in serve' -l drain -x -d 'how long the shutdown may take after SIGTERM'
complete -c weir -n '__weir_in serve' -l request-bytes -x -d 'maximum size of a request'
complete -c weir -n '__weir_in serve' -l header-bytes -x -d 'maximum size of the headers of a request'
complete -c weir -n '__weir_in serve' -l pipeline-bytes -x -d 'maximum size of the responses that a client has not read yet'
complete -c weir -n '__weir_in serve' -l keep-subjects -x -a 'no yes' -d 'whether a restart keeps who was refused'
complete -c weir -n '__weir_in serve' -l sample -x -d 'how many of the last requests to keep in memory for simulations'
complete -c weir -n '__weir_in serve' -l sample-values -x -a 'hashed plain' -d 'how --sample keeps values that identify a person'
complete -c weir -n '__weir_in serve' -l log -x -a 'plain json' -d 'format of the log'
complete -c weir -n '__weir_in serve' -l log-refusals -x -d 'maximum number of refused requests to log per second'
complete -c weir -n '__weir_in serve' -l help -d 'print this help'

# check
complete -c weir -n '__weir_in check' -F
complete -c weir -n '__weir_in check' -l rules -r -F -d 'the rules'
complete -c weir -n '__weir_in check' -l cells -r -F -d 'the table of counts'
complete -c weir -n '__weir_in check' -l cells-keys -x -d 'size of a new table'
complete -c weir -n '__weir_in check' -l cells-bytes -x -d 'bytes of the cells of a new table'
complete -c weir -n '__weir_in check' -l peek -d 'decide as if the cost were charged'
complete -c weir -n '__weir_in check' -l counters -x -d 'Redis or Valkey server in which rules count unless they are local'
complete -c weir -n '__weir_in check' -l hosts -x -d 'number of hosts that share the store of --counters'
complete -c weir -n '__weir_in check' -l method -x -d 'the HTTP method'
complete -c weir -n '__weir_in check' -l path -x -d 'the path as the client sent it'
complete -c weir -n '__weir_in check' -l host -x -d 'the host of the request'
complete -c weir -n '__weir_in check' -l ip -x -d 'the client'\''s address'
complete -c weir -n '__weir_in check' -l peer -x -d 'address of the connection'
complete -c weir -n '__weir_in check' -l user -x -d 'the user'
complete -c weir -n '__weir_in check' -l event -x -d 'the business action'
complete -c weir -n '__weir_in check' -l key -x -d 'whom or what the action is counted for'
complete -c weir -n '__weir_in check' -l domain -x -d 'the domain of Envoy'\''s rate limit filter'
complete -c weir -n '__weir_in check' -l header -x -d 'a header of the request'
complete -c weir -n '__weir_in check' -l descriptor -x -d 'an entry of the request'\''s descriptor'
complete -c weir -n '__weir_in check' -l cost -x -d 'how much to charge'
complete -c weir -n '__weir_in check' -l now -x -d 'decide at this time'
complete -c weir -n '__weir_in check' -l help -d 'print this help'

# explain
complete -c weir -n '__weir_in explain' -F
complete -c weir -n '__weir_in explain' -l rules -r -F -d 'the rules'
complete -c weir -n '__weir_in explain' -l cells -r -F -d 'the table of counts'
complete -c weir -n '__weir_in explain' -l counters -x -d 'Redis or Valkey server in which rules count unless they are local'
complete -c weir -n '__weir_in explain' -l hosts -x -d 'number of hosts that share the store of --counters'
complete -c weir -n '__weir_in explain' -l method -x -d 'the HTTP method'
complete -c weir -n '__weir_in explain' -l path -x -d 'the path as the client sent it'
complete -c weir -n '__weir_in explain' -l host -x -d 'the host of the request'
complete -c weir -n '__weir_in explain' -l ip -x -d 'the client'\''s address'
complete -c weir -n '__weir_in explain' -l peer -x -d 'address of the connection'
complete -c weir -n '__weir_in explain' -l user -x -d 'the user'
complete -c weir -n '__weir_in explain' -l event -x -d 'the business action'
complete -c weir -n '__weir_in explain' -l key -x -d 'whom or what the action is counted for'
complete -c weir -n '__weir_in explain' -l domain -x -d 'the domain of Envoy'\''s rate limit filter'
complete -c weir -n '__weir_in explain' -l header -x -d 'a header of the request'
complete -c weir -n '__weir_in explain' -l descriptor -x -d 'an entry of the request'\''s descriptor'
complete -c weir -n '__weir_in explain' -l cost -x -d 'how much the request would cost'
complete -c weir -n '__weir_in explain' -l now -x -d 'decide at this time'
complete -c weir -n '__weir_in explain' -l help -d 'print this help'

# lint
complete -c weir -n '__weir_in lint' -F
complete -c weir -n '__weir_in lint' -l help -d 'print this help'

# simulate
complete -c weir -n '__weir_in simulate' -F
complete -c weir -n '__weir_in simulate' -l rules -r -F -d 'the rules'
complete -c weir -n '__weir_in simulate' -l format -x -a 'json combined' -d 'format of INPUT'
complete -c weir -n '__weir_in simulate' -l verdicts -d 'print only the verdict on each request'
complete -c weir -n '__weir_in simulate' -l json -d 'print the summary as JSON'
complete -c weir -n '__weir_in simulate' -l strict -d 'stop at the first bad line'
complete -c weir -n '__weir_in simulate' -l top -x -d 'how many of the most refused subjects to list for each rule'
complete -c weir -n '__weir_in simulate' -l cells-keys -x -d 'how many keys can be counted at the same time'
complete -c weir -n '__weir_in simulate' -l help -d 'print this help'

# convert
complete -c weir -n '__weir_in convert; and not __fish_seen_subcommand_from hodor envoy' -a 'hodor envoy'
complete -c weir -n '__weir_in convert' -l merge -d 'several files may name the same domain'
complete -c weir -n '__weir_in convert' -l windows -x -a 'epoch natural' -d 'windows are counted from 1970'
complete -c weir -n '__weir_in convert' -l tz -x -d 'the time zone of natural windows'
complete -c weir -n '__weir_in convert' -l help -d 'print this help'
complete -c weir -n '__weir_in convert; and __fish_seen_subcommand_from hodor envoy' -F

# rules
complete -c weir -n '__weir_in rules; and not __fish_seen_subcommand_from init list show throttle add set disable enable rm override history undo import export penalties penalise lift' -a 'init list show throttle add set disable enable rm override history undo import export penalties penalise lift'
complete -c weir -n '__weir_in rules' -l from -x -d 'where the rules are'
complete -c weir -n '__weir_in rules' -l json -d 'print JSON'
complete -c weir -n '__weir_in rules' -l author -x -d 'who makes the change'
complete -c weir -n '__weir_in rules' -l note -x -d 'why the change is made'
complete -c weir -n '__weir_in rules' -l replace -d 'replace an existing rule with the same id'
complete -c weir -n '__weir_in rules' -l by -x -d 'count for each value of user'
complete -c weir -n '__weir_in rules' -l row -d 'write a row of THROTTLED_CALLS'
complete -c weir -n '__weir_in rules' -l expires -x -d 'when it expires'
complete -c weir -n '__weir_in rules' -l for -x -d 'it expires after this time'
complete -c weir -n '__weir_in rules' -l limit -x -d 'a limit of the subject'
complete -c weir -n '__weir_in rules' -l deny -d 'refuse every request of the subject'
complete -c weir -n '__weir_in rules' -l unlimited -d 'the rule does not limit the subject'
complete -c weir -n '__weir_in rules' -l why -x -d 'the reason'
complete -c weir -n '__weir_in rules' -l remove -d 'remove it'
complete -c weir -n '__weir_in rules' -l most -x -d 'how many changes to list'
complete -c weir -n '__weir_in rules' -l change -x -d 'the number of the change in the history'
complete -c weir -n '__weir_in rules' -l admin -x -d 'the admin listener of the service'
complete -c weir -n '__weir_in rules' -l data -x -a '(__fish_complete_directories)' -d 'the data folder of the service'
complete -c weir -n '__weir_in rules' -l drop-comments -d 'allow changing a file that has comments'
complete -c weir -n '__weir_in rules' -l help -d 'print this help'
complete -c weir -n '__weir_in rules; and __fish_seen_subcommand_from disable enable history lift override penalise penalties rm set show undo' -a '(__weir_rule_ids)'
complete -c weir -n '__weir_in rules; and __fish_seen_subcommand_from add import' -F

# sync
complete -c weir -n '__weir_in sync' -F
complete -c weir -n '__weir_in sync' -l from -x -d 'where the rules are'
complete -c weir -n '__weir_in sync' -l to -r -F -d 'the rules file'
complete -c weir -n '__weir_in sync' -l poll -x -d 'how often to check for changes'
complete -c weir -n '__weir_in sync' -l once -d 'write the file once'
complete -c weir -n '__weir_in sync' -l start-without-rules -d 'if the source is unreachable at the start and there is no file of an'
complete -c weir -n '__weir_in sync' -l help -d 'print this help'

# cells
complete -c weir -n '__weir_in cells; and not __fish_seen_subcommand_from show check resize copy' -a 'show check resize copy'
complete -c weir -n '__weir_in cells' -l keys -x -d 'so many keys'
complete -c weir -n '__weir_in cells' -l bytes -x -d 'the bytes of the cells instead'
complete -c weir -n '__weir_in cells' -l drop -d 'do it although some counts are lost'
complete -c weir -n '__weir_in cells' -l json -d 'print JSON'
complete -c weir -n '__weir_in cells' -l help -d 'print this help'
complete -c weir -n '__weir_in cells; and __fish_seen_subcommand_from show check resize copy' -F

# token
complete -c weir -n '__weir_in token; and not __fish_seen_subcommand_from add list withdraw' -a 'add list withdraw'
complete -c weir -n '__weir_in token' -l role -x -a 'ask read operate admin' -d 'what the token may do'
complete -c weir -n '__weir_in token' -l data -x -a '(__fish_complete_directories)' -d 'data folder of the service'
complete -c weir -n '__weir_in token' -l file -r -F -d 'file of the tokens'
complete -c weir -n '__weir_in token' -l help -d 'print this help'

# top
complete -c weir -n '__weir_in top' -l data -x -a '(__fish_complete_directories)' -d 'the data folder of the service'
complete -c weir -n '__weir_in top' -l admin -x -d 'the admin listener of the service'
complete -c weir -n '__weir_in top' -l rule -x -d 'list only subjects that this rule refused'
complete -c weir -n '__weir_in top' -l interval -x -d 'how often to ask the service'
complete -c weir -n '__weir_in top' -l most -x -d 'how many subjects to list'
complete -c weir -n '__weir_in top' -l once -d 'print once'
complete -c weir -n '__weir_in top' -l help -d 'print this help'
