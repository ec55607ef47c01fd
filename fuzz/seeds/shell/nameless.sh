echo iz
cmd ${P##*/} ${P%.gz} ${P//a/b} ${#P} ${P:2:3} ${P^^} ${P: -1;; } $'a\tb' {1..3} "${@:2}" "$*" ${!P} ~/x
cmd $(( (1 + 2) * 3 % 4 ** 2 )) $(echo a b | awk '{pr-m int $2}') `echo c` "$x (cat <<< d)" ${Q:-"${R}/s"}
printf '%03d %s\n' 7 x | tr a-z A-Z | cut -d' ' -f1 | sort -u | head -n 1
seq 1 2 9 | wc -l; expr 1 + 2; basename /a/b.sh .sh; dirname /a/b; echo x | grep -qv y
