#!/usr/bin/env python3
"""Writes the completions of bash, zsh and fish from what `weir --help` and `weir COMMAND --help` print, which come from the tables
of options. tests/cli/test_completion.py says when that is due.

    completion/generate.py build/weir [FOLDER]
"""

import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"^  --([a-z-]+)(?: (\S+(?: \S+)*?))?(?:  +(.*))?$")
# The verbs whose next word is the id of a rule.
WITH_ID = {"show", "set", "disable", "enable", "rm", "override", "history", "undo", "penalties", "penalise", "lift"}
# Arguments that are names of files or folders.
FILES, FOLDERS = {"FILE"}, {"DIR"}


class Option:
    def __init__(self, name, argument, text):
        self.name, self.argument, self.text = name, argument, text

    @property
    def kind(self):
        """flag, file, folder, other, or the words that are allowed."""
        if self.argument is None:
            return "flag"
        if self.argument in FILES:
            return "file"
        if self.argument in FOLDERS:
            return "folder"
        return self.argument.replace("|", " ") if re.fullmatch(r"[a-z]+(\|[a-z]+)+", self.argument) else "other"


class Command:
    def __init__(self, name, summary, text):
        self.name, self.summary = name, summary
        about, _, rest = text.partition("\nOptions:\n")
        self.verbs = re.findall(r"^  ([a-z]+) ", about, re.MULTILINE) if name != "serve" else []
        self.options = []
        for line in rest.split("\n\n")[0].splitlines():
            found = OPTION.match(line)
            if found:
                self.options.append(Option(*found.groups()))
            elif self.options:
                self.options[-1].text = f"{self.options[-1].text or ''} {line.strip()}".strip()
        self.takes_files = bool(re.search(r"\b(FILE|PATH|INPUT)\b", text.splitlines()[0]))


def help_of(weir, *words):
    return subprocess.run([weir, *words, "--help"], check=True, capture_output=True, text=True).stdout


def commands_of(weir):
    listed = help_of(weir).partition("Commands:\n")[2].partition("\n\n")[0]
    return [Command(name, summary, help_of(weir, name)) for name, summary in re.findall(r"^  ([a-z]+) +(.*)$", listed, re.MULTILINE)]


def brief(text, most=70):
    """The beginning of a text, without what shells would read."""
    text = re.sub(r"^[a-z]+(, [a-z]+)*: ", "", text or "")  # "throttle, override: when it expires"
    text = re.split(r"[;.,] | \(|: ", text)[0].rstrip(".;")
    return plain(text if len(text) <= most else text[:most].rsplit(" ", 1)[0])


def plain(text):
    """It stands in single quotes."""
    return re.sub(r"[\"`$\\\[\]:]", "", text).replace("'", "'\\''")


HEAD = "# Made by completion/generate.py from the options of the commands: do not edit it.\n"


def bash(commands):
    out = [HEAD]
    for name, of in (("verbs", lambda c: " ".join(c.verbs)), ("options", lambda c: " ".join(f"--{o.name}" for o in c.options))):
        out.append(f"_weir_{name}() {{\n  case $1 in\n")
        out += [f"    {c.name}) echo '{of(c)}' ;;\n" for c in commands if of(c)]
        out.append("  esac\n}\n\n")
    out.append("# What the value of an option is: flag, file, folder, other, or the words that are allowed.\n_weir_value() {\n  case \"$1 $2\" in\n")
    out += [f"    '{c.name} --{o.name}') echo '{o.kind}' ;;\n" for c in commands for o in c.options if o.kind != "flag"]
    out.append("    *) echo flag ;;\n  esac\n}\n")
    out.append(BASH.replace("@COMMANDS@", " ".join(c.name for c in commands)).replace("@WITH_ID@", "|".join(sorted(WITH_ID)))
               .replace("@FILES@", "|".join(c.name for c in commands if c.takes_files and not c.verbs)))
    return "".join(out)


BASH = r"""
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
    mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@ help --help --version' -- "$current")
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
      [[ "$command $verb" == rules\ @(@WITH_ID@) ]] && kind='id'
      [[ "$command $verb" == rules\ @(add|import) || $command == @(cells|convert) ]] && kind='file'
    elif [[ $command == @(@FILES@) ]]; then
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
"""


def zsh(commands):
    out = ["#compdef weir\n", HEAD, "\n_weir() {\n  local -a commands verbs options\n  local command verb\n  integer i\n  commands=(\n"]
    out += [f"    '{c.name}:{plain(c.summary)}'\n" for c in commands]
    out.append("  )\n  if [[ $CURRENT == 2 && ${words[2]} == -* ]]; then\n    options=('--help:print the help' '--version:print the version')\n"
               "    _describe -o option options\n    return\n"
               "  elif ((CURRENT == 2)) || [[ ${words[2]} == help ]]; then\n    _describe command commands\n    return\n  fi\n"
               "  command=${words[2]}\n  case $command in\n")
    for c in commands:
        out.append(f"    {c.name})\n      options=(\n")
        out += [f"        '--{o.name}:{brief(o.text)}'\n" for o in c.options]
        out.append(f"      )\n      verbs=({' '.join(c.verbs)})\n      ;;\n")
    out.append("  esac\n  case \"$command ${words[CURRENT - 1]}\" in\n")
    for c in commands:
        for o in c.options:
            if o.kind != "flag":
                action = {"file": "_files", "folder": "_files -/", "other": "_message " + f"'{brief(o.text)}'"}.get(o.kind, f"compadd {o.kind}")
                out.append(f"    '{c.name} --{o.name}') {action}; return ;;\n")
    out.append("  esac\n" + ZSH.replace("@WITH_ID@", "|".join(sorted(WITH_ID)))
               .replace("@FILES@", "|".join(c.name for c in commands if c.takes_files and not c.verbs)) + "}\n\n_weir \"$@\"\n")
    return "".join(out)


ZSH = r"""  if [[ ${words[CURRENT]} == -* ]]; then
    _describe -o option options
  elif ((CURRENT == 3 && $#verbs)); then
    compadd -a verbs
  elif [[ "$command ${words[3]}" == rules\ (@WITH_ID@) ]]; then
    local from=${WEIR_FROM-}
    i=${words[(i)--from]}
    ((i < CURRENT)) && from=${words[i+1]}
    [[ $from == (file|sqlite):* ]] && compadd -- $(${words[1]} rules list --from $from 2>/dev/null | awk 'NR > 1 { if (!NF) exit; print $1 }')
  elif [[ $command == (@FILES@|cells|convert) || "$command ${words[3]}" == rules\ (add|import) ]]; then
    _files
  fi
"""


def fish(commands):
    names = " ".join(c.name for c in commands)
    out = [HEAD, FISH.replace("@COMMANDS@", names)]
    for c in commands:
        out.append(f"complete -c weir -n 'not __fish_seen_subcommand_from {names} help' -a {c.name} -d '{plain(c.summary)}'\n")
    out.append(f"complete -c weir -n '__fish_seen_subcommand_from help' -a '{names}'\n")
    for c in commands:
        out.append(f"\n# {c.name}\n")
        seen = f"-n '__weir_in {c.name}'"
        if c.verbs:
            verbs = " ".join(c.verbs)
            out.append(f"complete -c weir -n '__weir_in {c.name}; and not __fish_seen_subcommand_from {verbs}' -a '{verbs}'\n")
        elif c.takes_files:
            out.append(f"complete -c weir {seen} -F\n")
        for o in c.options:
            how = {"flag": "", "file": " -r -F", "folder": " -x -a '(__fish_complete_directories)'", "other": " -x"}.get(o.kind, f" -x -a '{o.kind}'")
            out.append(f"complete -c weir {seen} -l {o.name}{how} -d '{brief(o.text)}'\n")
        if c.name == "rules":
            out.append(f"complete -c weir -n '__weir_in rules; and __fish_seen_subcommand_from {' '.join(sorted(WITH_ID))}' -a '(__weir_rule_ids)'\n")
            out.append("complete -c weir -n '__weir_in rules; and __fish_seen_subcommand_from add import' -F\n")
        if c.name in ("cells", "convert"):
            out.append(f"complete -c weir -n '__weir_in {c.name}; and __fish_seen_subcommand_from {' '.join(c.verbs)}' -F\n")
    return "".join(out)


FISH = r"""
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
complete -c weir -n 'not __fish_seen_subcommand_from @COMMANDS@' -l help -d 'print the help'
complete -c weir -n 'not __fish_seen_subcommand_from @COMMANDS@' -l version -d 'print the version'
"""


def files(weir):
    """The name and the text of each."""
    commands = commands_of(weir)
    return {"weir.bash": bash(commands), "_weir": zsh(commands), "weir.fish": fish(commands)}


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else pathlib.Path(__file__).parent)
    for name, text in files(sys.argv[1]).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
