[ -n "${IN:-}" ] || IN=1 bash inner.sh x
. ./inner.sh
set -euo pipefail
N=${N:-2}; A=(a=1 "b=x y"); A+=(c=3); declare -A M=([k]=v)
run() { local n=$1; shift; python3 -m trainer nodes=$n "$@"; return 3; }
for n in 4 2; do [ "$n" = 2 ] && continue; run $n "${A[@]}" || true; done
for ((i = 0; i < 3; i++)); do echo $i; done
while read -r line; do x=$line; done < <(seq 3)
until nc -z host 1; do sleep 5; done
case ${X:-big} in small) N=1 ;; b*|huge) N=2 ;; *) N=3 ;; esac
if [[ $N == 2 && -f inner.sh ]]; then (cd folder && pwd) | tee log; elif ! test -d /x; then exit 1; fi
python3 -m trainer.main n=$((N * 2)) k=${M[k]} nodes=${SLURM_NNODES:-1} > log 2>&1 &
wait $!
