"""What operators run on: memory, TVM, CUDA, cuDNN, torch. It knows no operator."""
