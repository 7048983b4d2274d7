// glibc 2.32 has this: true while there is one thread, when reference counts need no atomic instructions. False is always right.
// The callbacks for PyTorch have their own, so that they are loaded where glibc is older.
extern "C" {
extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}
