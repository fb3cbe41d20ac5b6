"""cuDNN: its C library and nvidia-cudnn-frontend."""
