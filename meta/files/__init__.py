"""Files of users: written atomically, and read as if anyone had written them.

atomic         a file is replaced at once, or stays as it was
signing        signatures that only this user can make
program_file   machine code with its hash and a signature
safetensors    named arrays and text, in the safetensors format
strict_json    JSON text that anyone may have written
into_memory    files read straight into arrays
"""
