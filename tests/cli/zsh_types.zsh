# SPDX-License-Identifier: Apache-2.0
# Types each argument and a tab into a zsh of its own and prints what its line is then. The folder $T holds the completion
# as "_reshard"; with $SOURCED it is read in, as a ~/.zshrc does, instead of loaded when it is needed.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT=; fpath=($T \$fpath); autoload -U compinit; compinit -u -D; ${SOURCED:+source $T/_reshard}"
zpty -w shell 'show() { zle -I; print -r -- "<$BUFFER>"; BUFFER=; }; zle -N show; bindkey "^X" show; print REA""DY'
zpty -r shell out '*READY*'
for line; do
    zpty -w -n shell "$line"$'\t\x18'
    zpty -r shell out '*<*>*'
    print -r -- "${${out##*<}%%>*}"
done
