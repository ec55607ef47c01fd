// Options of what a run keeps and tells: folder, checkpoints, log, emulated devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/key_facts.h"

namespace braid::inline config {

struct CheckpointConfig {
  std::string dir;
  int64_t every_steps = 0;
  double every_minutes = 10;
  int64_t keep_last = 2;
  std::string keep_best;
  std::string resume = "none";
  std::vector<std::string> allow;
  int64_t hf_every_steps = 0;
  bool async = true;
};

template <class V>
void visit(V& v, CheckpointConfig& o) {
  v("dir", o.dir, "\"\" = RUN/checkpoints");
  v("every_steps", o.every_steps, "steps; 0 = not by steps", counted(0, kMostSteps),
    key::beside_the_step);
  v("every_minutes", o.every_minutes,
    "minutes since the last one, looked at after each step; 0 = not by time", at_least(0),
    key::beside_the_step);
  v("keep_last", o.keep_last, "newest checkpoints that are kept", counted(1, kMostSteps));
  v("keep_best", o.keep_best, "metric name; \"\" = off");
  v("resume", o.resume, "auto | none | PATH");
  v("allow", o.allow, "keys that may differ from those of the checkpoint, [optim.actor.lr] for one",
    key::read_if(ReadIf::kResuming));
  v("hf_every_steps", o.hf_every_steps,
    "steps between exports of a Hugging Face folder; 0 = only at the end", counted(0, kMostSteps),
    key::beside_the_step);
  v("async", o.async,
    "a checkpoint is copied to host memory and written beside the next steps; not where "
    "train.memory_limit_gib is set",
    key::beside_the_step);
}

struct LogConfig {
  bool console = true;
  std::string names = "braid";
  bool jsonl = true;
  bool tensorboard = true;
  std::string wandb;
  std::string mlflow;
  std::vector<std::string> command;
  double command_timeout_s = 10;
  std::string command_on_error = "warn";
  int64_t samples_every = 10;
};

template <class V>
void visit(V& v, LogConfig& o) {
  v("console", o.console, "a line per step on standard error");
  v("names", o.names,
    "what metrics are called where they are written: verl and trl have their own names for the "
    "numbers that they know too (docs/metrics.md); the console has its own",
    one_of("braid | verl | trl"));
  v("jsonl", o.jsonl, "metrics.jsonl in the run's folder");
  v("tensorboard", o.tensorboard, "event files in the run's folder");
  v("wandb", o.wandb, "project in Weights & Biases (Python package wandb); \"\" = off");
  v("mlflow", o.mlflow, "experiment in MLflow (Python package mlflow); \"\" = off");
  v("command", o.command,
    "program and arguments; each row of metrics is a JSON line on its standard input");
  v("command_timeout_s", o.command_timeout_s,
    "seconds in which it must take a row, and in which it must end after the last one", above(0),
    key::read_if(ReadIf::kTrackers));
  v("command_on_error", o.command_on_error,
    "what its failure does, also that of wandb and mlflow: warn (go on without it) | stop (the run "
    "ends)",
    one_of("warn | stop"), key::read_if(ReadIf::kTrackers));
  v("samples_every", o.samples_every, "steps between rows of samples.jsonl; 0 = off",
    counted(0, kMostSteps));
}

struct ReportConfig {
  bool html = true;
  int64_t recorded_steps = 32;
};

template <class V>
void visit(V& v, ReportConfig& o) {
  v("html", o.html,
    "report.html in the run's folder when the run ends, as 'braid report' makes it of "
    "metrics.jsonl (log.jsonl)");
  v("recorded_steps", o.recorded_steps,
    "steps, spread over the run, of which ranks.jsonl says what each rank did and held; 0 = off",
    counted(0, 1000));
}

struct RuntimeConfig {
  double time_scale = 0;
  double jitter = 0;
  std::string fault = "none";
  double stall_s = 0;
  double wait_s = 0;
  double join_s = 120;
  std::string load = "auto";
};

template <class V>
void visit(V& v, RuntimeConfig& o) {
  v("time_scale", o.time_scale,
    "device emulated: seconds of this machine for a second of the model; 0 = as many as keep what "
    "the real communication takes small",
    at_least(0));
  v("jitter", o.jitter,
    "device emulated: largest share by which what computes takes more or less than its price",
    from_to_below(0, 1));
  v("fault", o.fault,
    "device emulated: the lists of instructions are made wrong in one place, to see that the step "
    "shows it",
    one_of("none | dropped_wait | swapped_messages"));
  v("stall_s", o.stall_s,
    "several ranks: seconds without progress after which a rank is stuck and the job ends; 0 = the "
    "largest of 300, ten times the longest step so far, and twice what a reward may take",
    at_least(0), key::no_cost("bounds a wait"), key::read_if(ReadIf::kPlan));
  v("wait_s", o.wait_s,
    "several ranks: seconds in which what a rank waits for of others must have come, else the job "
    "ends and says of whom; 0 = the larger of 3600 and twice what a reward may take",
    at_least(0), key::no_cost("bounds a wait"), key::read_if(ReadIf::kPlan));
  v("join_s", o.join_s,
    "several ranks: seconds in which all of them must have come, and a group of them have "
    "connected",
    above(0), key::no_cost("bounds a wait"), key::read_if(ReadIf::kPlan));
  v("load", o.load,
    "several ranks: files: each rank reads its slices of the files of weights; peers: of ranks "
    "with equal slices (data parallel without ZeRO-3) the first one reads and sends them to the "
    "others; auto: peers for ranks on several machines and files on a disk of the network",
    one_of("auto | files | peers"), key::no_cost("before the first step"),
    key::read_if(ReadIf::kPlan));
}

struct RunConfig {
  std::string name = "run";
  std::string dir = "runs";
  bool overwrite = false;
};

template <class V>
void visit(V& v, RunConfig& o) {
  v("name", o.name, "of the run");
  v("dir", o.dir, "the run's folder is DIR/NAME");
  v("overwrite", o.overwrite, "begin anew in the folder of an earlier run, which is lost");
}

}  // namespace braid::inline config
