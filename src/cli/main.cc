// hone: argv to one call. See cli/ for one file a command.
int main() { return 0; }
