// The models of one rank: for each role that it has a part of, the home copy, which training
// updates, and copies in the layouts of other calls, which are filled from it when a call needs
// them. Also the groups of ranks that each call's model communicates in. Not thread-safe.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/transfer_audit.h"
#include "comm/world.h"
#include "config/options.h"
#include "nn/decoder.h"
#include "program/program.h"
#include "program/tensor_map.h"
#include "samples/call_groups.h"
#include "weights/host_state.h"
#include "weights/move_weights.h"
#include "weights/run_state.h"
#include "weights/shared_reads.h"

namespace braid::inline weights {

class RankModels {
 public:
  // Loads the parts of the roles that this rank has. `world` is null in a job of one rank. All
  // ranks call it together. REQUIRES: the world outlives this. Errors name the role.
  static Result<std::unique_ptr<RankModels>> load(const Config& config, const Program& program,
                                                  World* world);

  // The home copies on this rank.
  Roles& roles() { return roles_; }
  const Roles& roles() const { return roles_; }
  // Home copies by role, then the others as "ROLE in another layout".
  std::vector<std::pair<std::string, const ModelInstance*>> instances() const;
  // Of a call that this rank takes part in.
  Model& model(CallId call);
  const CallGroups& groups(CallId call) const { return groups_.at(call.value); }

  // Entries of the program's reallocations. Begins one; nothing where it has begun. kDeadline,
  // kUnavailable: a message failed.
  Status begin_reallocation(int32_t entry);
  // The same where it stands in the list: a rank that only sends or gathers has done so then, or
  // its messages are on their way.
  Status reallocate(int32_t entry);
  // Waits until what this rank sends has left and what it receives has come.
  Status reallocated(int32_t entry);
  // At the end of a step, on all ranks: the same of all.
  Status end_moves();
  // Between two steps, on all ranks: fills the copy that a call uses, if it is not the home copy
  // and has not been filled beside training.
  Status fill_copy_of(CallId call);
  // On all ranks. A step begins: the copy that the step before fills beside its training is filled
  // now where none has done that since the weights changed. A step has ended: it has. Weights have
  // come from a checkpoint: none has.
  Status begin_step();
  void end_step() { synced_ = program_.synced_copy >= 0; }
  void note_restored() { synced_ = false; }
  // The role that a call names moves towards the one that it follows (weights/follow.h). All ranks
  // of the call do so together.
  Status follow(CallId call, double keep);
  // A role's weights have changed: its other copies on this rank are stale until they are filled.
  void note_training(const RoleId& role);
  // Whether memory of weights or state comes and goes, so that what the heap keeps of it is missed.
  bool saves_memory() const;
  // Frees the copy: the next reallocation makes it anew.
  void release(int32_t copy) { copies_.erase(copy); }
  // As release(), of the copy that a call uses, where the program releases it after its use and
  // does not need it when the next step begins. All ranks call it, between two steps.
  void forget(CallId call);

  // State that rests on the host between its uses (indices into Program::states): at first it is
  // here. Nothing where it is there already, or the rank has none of it. It comes beside what
  // computes: layers of weights, or all of it where there are none.
  void begin_load(int32_t state, const Interval& layers);
  // Waits for the weights of the call's role that are on their way, but where the program says that
  // its passes do so themselves, layer by layer. REQUIRES: the loads have begun.
  void await(CallId call);
  void offload(int32_t state);
  void rest();          // all of it
  void bring_states();  // all of it, and waits for it
  // A role's weights and optimizer are about to change: waits for what is on its way.
  void note_update(const RoleId& role);
  // Whether some of a role's state rests on the host.
  bool rests(const RoleId& role) const;
  // Brings all state for the scope, and puts away at its end what had been away.
  class Everything {
   public:
    explicit Everything(RankModels& models);
    ~Everything();
    Everything(const Everything&) = delete;
    Everything& operator=(const Everything&) = delete;

   private:
    RankModels& models_;
    std::vector<int32_t> away_;
  };

  // Whether the first rank of the job has all of a trained role's weights and optimizer.
  bool whole_on_first(const std::string& role) const;
  // What this rank writes of a role that is here, and whether it is the first of those that have
  // it. No rank waits for another.
  RoleSlices own_slices(const std::string& role) const;
  bool leads(const std::string& role) const;

 private:
  RankModels(const Config& config, const Program& program, World* world)
      : config_(config), program_(program), world_(world) {}

  DeviceId self() const { return DeviceId{static_cast<int>(rank())}; }
  int64_t rank() const { return world_ == nullptr ? 0 : world_->global_rank(); }
  Status load_models();
  Status load_copy(int32_t copy, const ModelPart& part);
  ModelPart part_of(CallId call) const;
  ReadBlocks* reads_of(CallId call);  // of its copy; null where nobody compares
  // How the files of the call's copy are read: by whom, and what gets what was read.
  Status set_reading(CallId call, ModelPart* part);
  int32_t home_of(const RoleId& role) const;
  Status begin_move(int32_t entry);
  const TensorMap& map_of(const RoleId& role, const ModelSpec& architecture);
  void find_states();
  void load(int32_t state);
  bool passes_wait(CallId call) const;
  bool is_synced(int32_t copy) const;

  const Config config_;
  const Program program_;
  World* const world_;
  Communicator* everyone_ = nullptr;
  bool reads_for_peers_ = false;
  bool synced_ = false;  // between two steps: the program's synced copy has the role's weights
  Roles roles_;
  // A copy that is not home.
  struct Copy {
    ModelInstance instance;
    bool filled = false;  // since its weights changed; never of a role that is not trained
  };
  std::map<int32_t, Copy> copies_;  // by index in the program
  // Weights that came or come from or to this rank in the open step.
  struct OpenMove {
    int32_t entry = -1;
    RoleId role;
    Copy* target = nullptr;             // null where this rank only gives
    std::unique_ptr<StartedMove> move;  // null once they are there
    bool compares = false;              // hashes with the senders
    TransferAudit audit;
  };
  void expect_listed(OpenMove& move) const;
  Status finish(OpenMove& move);
  OpenMove* open_move(int32_t entry);  // null: it has not begun
  std::list<OpenMove> moves_;          // in the program's order
  std::set<int32_t> compared_;         // entries that have moved weights in this run
  struct Resting {
    HostState memory;
    bool changed = false;        // since it was brought
    Decoder* decoder = nullptr;  // of weights, where passes can wait for them; else null
  };
  std::map<int32_t, Resting> states_;      // by index in the program
  std::map<int32_t, CallGroups> groups_;   // by call
  std::optional<CopyReads> reads_;         // of a job, until they are compared
  std::map<std::string, CallId> homes_;    // of roles that are here: the call whose part they are
  std::map<std::string, TensorMap> maps_;  // of roles whose weights move
  // Of states in host memory. Last: it ends before what it copies goes.
  std::unique_ptr<CopyThread> copy_thread_;
};

}  // namespace braid::inline weights
