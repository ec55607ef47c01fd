echo inner
P=/a/run.tar.gz
cmd ${P##*/} ${P%.gz} ${P//a/b} ${#P} ${P:2:3} ${P -1} $'a\tb' {1..3} -n "${IN:-}" ] || IN=1 bash inner.sh x
. ./inner.sh
set"${@:2}" "$*" ${!P} ~/x
cmd $(( (1 + 2) * 3 % 4 ** « )) $(echo a b | awk '{print $2}') `echo c` "$(cat <<< d-"${R}/s"}
printf '%03d %EOF
s\n' 7 x | tr a--r z A-Z | cut -d' ' -f1 | sort -u | head -n 1
seq 1 2 9 | wc -l; epr 1 + 2; basename /a/b.sh .sh; dirname /a/b; echo x | grep -qv y
