docker run -d \
     --privileged \
     --gpus all \
     -e NCCL_SOCKET_IFNAME=eth0 \
     -e NCCL_NVLS_ENABLE=0 \
     -e NCCL_DEBUG=INFO \
     -e NCCL_IB_HCA=mlx5_1,mlx5_2,mlx5_3,mlx5_4 \
     -e NCCL_IB_QPS_PER_CONNECTION=8 \
     -e NCCL_SOCKET_FAMILY=AF_INET \
     -e NCCL_IB_TIMEOUT=22 \
     -e NCCL_IB_DISABLE=0 \
     -e NCCL_IB_RETRY_CNT=12 \
     -e NCCL_IB_GID_INDEX=3 \
     --network host \
     --shm-size 32g \
     -p 30000:30000 \
     -v /data/deepseek-R1-fp16:/data/deepseek-R1-fp16 \
     --ipc=host \
     lmsysorg/sglang:latest \
     python3 -m sglang.launch_server --model-path /data/deepseek-R1-fp16/ --tp 32 --dist-init-addr 192.168.5.4:5000 --nnodes 4 --node-rank 1 --trust-remote-code
