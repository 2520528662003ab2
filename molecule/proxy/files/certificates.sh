#!/bin/sh
# Two self-signed certificates for the node's address: first.crt and second.crt with their keys, in the folder $1.
set -eu
for name in first second; do
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=$name" \
    -addext "subjectAltName=IP:$2" -keyout "$1/$name.key" -out "$1/$name.crt" 2>/dev/null
done
