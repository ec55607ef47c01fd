// braid: the one program that people type. Commands that plan, read and check run here; those that
// compute are checked here and run in braid-engine.
#include "braid/commands.h"
#include "braid/program.h"

int main(int argc, char** argv) {
  return braid::run_program(braid::all_commands(argv), argc, argv);
}
