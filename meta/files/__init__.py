"""Files of users: written atomically, and read as if anyone had written them.

atomic         a file is replaced at once, or stays as it was
safetensors    named arrays and text, in the safetensors format
"""
