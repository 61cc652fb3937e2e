// What a person or a scheduler asks of a training by a signal.
#pragma once

namespace mortise::cli {

// Whoever sends SIGINT, SIGTERM, SIGHUP or SIGUSR1 from here on waits until handle_signals(): nothing is lost while
// libraries load.
void hold_signals();

// SIGINT and SIGTERM end a training in an orderly way, a second SIGINT at once; SIGUSR1 asks for a checkpoint; SIGHUP
// is ignored. The first thing that `train` and `resume` do.
void handle_signals();

// SIGINT or SIGTERM, if one of them came; else 0.
int end_asked();
// True once for each SIGUSR1.
bool save_asked();

}  // namespace mortise::cli
