/* A program that runs the training loop itself, in C. C++ programs use mortise/runtime.hpp, which is made of this.
 *
 * The program brings the model, [model.host] in the manifest; everything else is the run's, as `mortise train` would
 * have it. It is linked with libmortise.so. */
#ifndef MORTISE_PROGRAM_H
#define MORTISE_PROGRAM_H
#include "abi.h"
MORTISE_BEGIN

/** What a program brings; it lives until mortise_program_main returns. Each function is called on the thread that
 * called mortise_program_main; on a failure it returns what `host->fail` returned. Plugins find it as
 * "mortise.program/0"; model.host is the one that asks. */
typedef struct mortise_program {
  uint32_t struct_size;
  uint32_t abi_major, abi_minor; /* MORTISE_ABI_MAJOR, MORTISE_ABI_MINOR */
  uint32_t reserved;
  const char *manifest; /* the file, where the command line names none */
  void *self;
  /** Declares the parameters of the model, in one segment that is there. [build] */
  mortise_status (*declare)(void *self, mortise_host *, mortise_builder *) MORTISE_NOEXCEPT;
  /** The forward pass of a micro-batch: as `segment` of mortise_model. */
  mortise_status (*forward)(void *self, mortise_host *, mortise_call *) MORTISE_NOEXCEPT;
  /** The gradients of all micro-batches of this step are there; what follows updates the parameters. */
  mortise_status (*gradients)(void *self, mortise_host *) MORTISE_NOEXCEPT;
  /** The step is over. */
  mortise_status (*step_end)(void *self, mortise_host *) MORTISE_NOEXCEPT;
} mortise_program;

/** Runs `mortise train` with these words: [MANIFEST] and its flags, argv[0] being the program's name. Returns the exit
 * code, when training has ended or could not begin. */
int mortise_program_main(int argc, char **argv, const mortise_program *program);

MORTISE_END
#endif
