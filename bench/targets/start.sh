# gracchus start: both services in one process; OURS_BIN = the binary.
T_NAME="gracchus start"
BIN=${OURS_BIN:-gracchus}
t_zk_start() { :; }   # inside the broker's process
t_broker_start() {
  local id=$1 config=()
  [ "$id" = 0 ] || { echo "gracchus start runs one broker" >&2; return 1; }
  for line in log.segment.delete.delay.ms=1000 auto.create.topics.enable=true "min.insync.replicas=${MIN_ISR:-1}" $EXTRA_PROPS; do config+=(--config "$line"); done
  cd "$RUN"; setsid nohup "$BIN" start --data "$RUN/data" --kafka-port "$((KPORT+id))" --zookeeper-port "$ZKPORT" --console-port 0 "${config[@]}" >> "$RUN/broker-$id.log" 2>&1 < /dev/null & echo $! > "$RUN/broker-$id.pid"
}
t_size() { echo "binary_bytes $(stat -c %s "$BIN")"; }
