// Ctrl-C as a flag that loops look at. A second Ctrl-C before the first was taken ends the program at once.
#pragma once

namespace hone {

// Catches SIGINT and SIGTERM from now on.
void CatchInterrupts();
// Whether a signal came since the last Take.
bool Interrupted();
bool TakeInterrupt();  // the same, and forgets it
// Sleeps until a signal comes.
void WaitForInterrupt();

}  // namespace hone
