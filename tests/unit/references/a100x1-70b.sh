docker run -itd --name sglang_ds70 \
    --gpus all --ipc=host --shm-size=16g \
    -v /data/deepseek-ai:/data \
    --network=host lmsysorg/sglang:latest \
    python3 -m sglang.launch_server \
    --model "/data/models/deepseek-70b" \
    --tp 8 --mem-fraction-static 0.8 \
    --trust-remote-code --dtype bfloat16 \
    --host 0.0.0.0 --port 30000 \
    --api-key token-abc123 \
    --served-model-name DeepSeek-70B
