// Launch scripts by both ways: what each form starts is read alike, and a script that means harm
// changes nothing, reaches nothing and leaves nothing running.
#include "foreign/scripts/launch_script.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/text.h"
#include "foreign/scripts/recorded_script.h"
#include "host/file.h"
#include "host/sandbox_filter.h"
#include "host/sha256.h"

namespace braid::inline foreign_scripts {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Pair;

constexpr const char* kTrainer =
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B "
    "algorithm.adv_estimator=grpo ";

// One try: why there is no sandbox here, or "".
const std::string& why_no_launch_sandbox() {
  static const std::string why = [] {
    std::string folder = (fs::temp_directory_path() / "braid-test-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) return std::string("no scratch folder");
    (void)write_file_atomic(join_path(folder, "run.sh"), ":\n");
    const auto script = RecordedScript::run(join_path(folder, "run.sh"), {});
    fs::remove_all(folder);
    return script.ok() ? std::string() : script.status().message();
  }();
  return why;
}

class ByEachWay : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "sandbox" && !why_no_launch_sandbox().empty())
      GTEST_SKIP() << why_no_launch_sandbox();
    std::string name = (fs::temp_directory_path() / "braid-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = fs::canonical(name).string();
    project_ = join_path(folder_, "project");
    ASSERT_TRUE(make_folder(project_).ok());
    ASSERT_TRUE(write_file_atomic(join_path(project_, "setup.py"), "").ok());
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  void add(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(join_path(project_, name), text).ok());
  }

  Result<LaunchScript> read(const std::string& text, const std::vector<std::string>& variables = {},
                            int gpus = 0) {
    const std::string path = join_path(project_, "run.sh");
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    const auto framework = find_framework("verl");
    return read_launch_script(**framework, path, text, {GetParam(), variables, gpus});
  }

  std::string folder_, project_;
};

INSTANTIATE_TEST_SUITE_P(Ways, ByEachWay, testing::Values("sandbox", "text"),
                         [](const auto& info) { return std::string(info.param); });

struct Form {
  const char* what;
  std::string text;
};

std::vector<Form> forms() {
  const std::string train = cat(kTrainer, "trainer.nnodes=2");
  return {
      {"in the background", cat("nohup ", train, " > log 2>&1 &\nsleep 1\n")},
      {"waited for", cat(train, " > log 2>&1 &\nPID=$!\nwait $PID\n")},
      {"waited for by all", cat(train, " > log.txt 2>&1 &\nwait\necho done\n")},
      {"a login shell", cat("bash -lc '", train, "'\n")},
      {"a login shell behind another program", cat("srun --nodes=2 bash -lc \"", train, "\"\n")},
      {"an absolute path", cat("/opt/venv/bin/", train, "\n")},
      {"an absolute path with a log", cat("/opt/venv/bin/", train, " > log 2>&1 &\nwait\n")},
      {"a path in a variable", cat("PYTHON=/opt/x/bin/python3\n$PYTHON ", train.substr(8), "\n")},
      {"xargs", cat("echo trainer.nnodes=2 | xargs ", kTrainer, "\n")},
      {"xargs with a place", cat("echo 2 | xargs -I{} ", kTrainer, "trainer.nnodes={}\n")},
      {"uv run", cat("uv run ", train, "\n")},
      {"uv run of a script", "uv run bash inner.sh\n"},
      {"a script beside it", "bash \"$(dirname \"$0\")/inner.sh\"\n"},
      {"a sourced file", cat("source inner.env\n", kTrainer, "trainer.nnodes=$NODES\n")},
      {"a log in a folder that it makes", cat("mkdir -p logs\n", train, " > logs/x 2>&1\n")},
      {"a log in a folder that it lacks", cat(train, " > /data/logs/x 2>&1\n")},
      {"a pipe", cat(train, " 2>&1 | tee log\n")},
      {"waiting for a port", cat("while ! nc -z host 1; do sleep 5; done\n", train, "\n")},
      {"waiting for ever", cat("while true; do if ray status | grep -q 2; then break; fi; "
                               "sleep 5; done\n",
                               train, "\n")},
      {"until", cat("until curl -s localhost; do sleep 1; done\n", train, "\n")},
      {"GPUs that are counted",
       cat("N=$(nvidia-smi -L | wc -l)\n", kTrainer, "trainer.nnodes=$((N / 2))\n")},
      {"GPUs that Python counts",
       cat("N=$(python3 -c 'import torch; print(torch.cuda.device_count())')\n", kTrainer,
           "trainer.nnodes=$((N - 2))\n")},
      {"conditions", cat("M=${M:-b}\nif [ \"$M\" = a ]; then N=1; elif [[ $M == b* ]]; then N=2; "
                         "else N=3; fi\n",
                         kTrainer, "trainer.nnodes=$N\n")},
      {"case", cat("case ${X:-big} in small) N=1;; b*|huge) N=2;; *) N=3;; esac\n", kTrainer,
                   "trainer.nnodes=$N\n")},
      {"arrays and functions",
       cat("A=(trainer.nnodes=1)\nA+=(trainer.nnodes=2)\nrun() { local x=$1; shift; ", kTrainer,
           "\"$@\"; }\nrun y \"${A[@]}\"\n")},
      {"a loop over sizes", cat("for n in 4 2; do :; done\n", kTrainer, "trainer.nnodes=$n\n")},
      {"env", cat("env -u X VLLM_USE_V1=1 ", train, "\n")},
      {"timeout", cat("timeout 60 ", train, "\n")},
      {"exec", cat("exec ", train, "\n")},
      {"eval", cat("eval \"", train, "\"\n")},
      {"a document", cat("bash <<EOF\n", train, "\nEOF\n")},
      {"a container that changes its folder",
       cat("docker run --gpus all -v /data:/w image bash -c \"cd /w && ", train, "\"\n")},
      {"a container with a path",
       cat("docker run image sh -c 'cd /w && /opt/x/bin/", train, "'\n")},
      {"another shell that changes its folder", cat("sh -c 'cd /w && ", train, "'\n")},
      {"a shell without the options of its parent",
       cat("set -euo pipefail\nbash -c 'false; echo $EXTRA; ", train, "'\n")},
      {"a job as a document", cat("sbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=2\ncd /w\n", kTrainer,
                                  "trainer.nnodes=\\$SLURM_NNODES\nEOF\n")},
      {"a job as a document behind options",
       cat("ID=$(sbatch --parsable -N 2 -J x <<'EOF'\n#!/bin/bash\n#SBATCH --nodes=2\n",
           "echo begin\nsrun bash -c \"cd /w && ", train, " trainer.x=1\"\nEOF\n)\n",
           "echo $((ID + 1))\n")},
      {"a job that is piped", cat("cat <<EOF | sbatch --nodes 2\n#!/bin/bash\n", train, "\nEOF\n")},
      {"a job that it writes",
       cat("cat > job.slurm <<EOF\n#!/bin/bash\n", kTrainer,
           "trainer.nnodes=\\$1\nEOF\nsbatch -J x job.slurm 2 | awk '{print $4}'\n")},
      {"a job of one command", cat("sbatch --nodes=2 --wrap=\"", train, "\"\n")},
      {"a job by a path", cat("/opt/slurm/bin/sbatch <<EOF\n", train, "\nEOF\n")},
      {"a document that queues a script that is not there",
       cat("bash <<EOF\nsbatch other.slurm\n", train, "\nEOF\n")},
      {"a sweep of hydra", cat(kTrainer, "--multirun trainer.nnodes=2,4\n")},
      {"a job of Slurm", cat("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n", kTrainer,
                             "trainer.nnodes=$SLURM_NNODES\n")},
      {"nodes of Slurm",
       cat("#SBATCH -N 2\nnodes=($(scontrol show hostnames \"$SLURM_JOB_NODELIST\"))\n", kTrainer,
           "trainer.nnodes=${#nodes[@]}\n")},
      {"nothing unset", cat("set -euo pipefail\nN=${NODES_GIVEN:-2}\n", kTrainer,
                            "trainer.nnodes=$N ${EXTRA:+no=1} \"$@\"\n")},
  };
}

TEST_P(ByEachWay, EveryFormOfAScriptStartsItsTraining) {
  add("inner.sh", cat(kTrainer, "trainer.nnodes=2\n"));
  add("inner.env", "export NODES=2\n");
  for (const Form& form : forms()) {
    const auto launch = read(form.text, {}, 4);
    ASSERT_TRUE(launch.ok()) << form.what << ": " << launch.status().message();
    EXPECT_EQ(launch->way, GetParam());
    EXPECT_THAT(launch->keys, AllOf(Contains(Pair("trainer.nnodes", "2")),
                                    Contains(Pair("algorithm.adv_estimator", "grpo"))))
        << form.what;
  }
}

TEST_P(ByEachWay, SaysWhichWayAndWhatItAssumed) {
  const auto asked = read(cat("N=$(nvidia-smi -L | wc -l)\n", kTrainer, "trainer.nnodes=$N\n"));
  ASSERT_TRUE(asked.ok());
  EXPECT_THAT(asked->keys, Contains(Pair("trainer.nnodes", "8")));
  EXPECT_THAT(asked->notes.front(),
              HasSubstr(std::string(GetParam()) == "text" ? "was read as text; nothing was run"
                                                          : "was run in a sandbox"));
  EXPECT_THAT(asked->notes, Contains(HasSubstr("answered with 8, --gpus-per-node")));
  const auto sweep = read(cat(kTrainer, "--multirun trainer.nnodes=2,4 data.x=1,2\n"));
  ASSERT_TRUE(sweep.ok());
  EXPECT_THAT(sweep->notes, Contains(HasSubstr("a sweep of 4 runs")));
  const auto slurm = read(cat("#SBATCH --nodes=4\n", kTrainer, "trainer.nnodes=2\n"));
  ASSERT_TRUE(slurm.ok());
  EXPECT_THAT(slurm->notes, Contains(HasSubstr("ask for 4 nodes")));
  const auto given = read(cat("set -u\n", kTrainer, "trainer.nnodes=$NNODES\n"), {"NNODES=3"});
  ASSERT_TRUE(given.ok());
  EXPECT_THAT(given->keys, Contains(Pair("trainer.nnodes", "3")));
  const auto needs = read(cat("set -u\n", kTrainer, "trainer.nnodes=$NNODES\n"));
  ASSERT_TRUE(needs.ok());
  EXPECT_THAT(needs->notes, Contains(HasSubstr("needs the variable NNODES")));
  EXPECT_THAT(needs->keys, Contains(Pair("trainer.nnodes", "$NNODES")));
  const auto none = read("echo hello; exit 3\n");
  EXPECT_THAT(none.status().message(), AllOf(HasSubstr("starts no RL training"), HasSubstr("3")));
}

TEST(TextWay, SaysWhichConditionItCouldNotEvaluate) {
  std::string folder = (fs::temp_directory_path() / "braid-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = join_path(folder, "run.sh");
  const std::string text =
      cat("N=2\nif [ -d /scratch/fast ]; then N=8; fi\n", kTrainer, "trainer.nnodes=$N\n");
  ASSERT_TRUE(write_file_atomic(path, text).ok());
  const auto launch = read_launch_script(**find_framework("verl"), path, text, {"text", {}, 0});
  fs::remove_all(folder);
  ASSERT_TRUE(launch.ok());
  EXPECT_THAT(launch->keys, Contains(Pair("trainer.nnodes", "2")));
  EXPECT_THAT(launch->notes, Contains(AllOf(HasSubstr("line 2: `[ -d /scratch/fast ]`"),
                                            HasSubstr("taken as false"))));
}

// A process that may not make name spaces, as in many containers.
void forbid_sandboxes() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !install_filter(call_filter())) ::_exit(9);
}

int read_where_there_is_no_sandbox(const std::string& path, const std::string& text) {
  forbid_sandboxes();
  const Framework& verl = **find_framework("verl");
  const auto usual = read_launch_script(verl, path, text, {"", {}, 0});
  const auto forced = read_launch_script(verl, path, text, {"sandbox", {}, 0});
  if (!usual.ok() || usual->way != "text" || usual->keys.at("trainer.nnodes") != "2") return 1;
  if (usual->notes.front().find("no sandbox can be had here (unshare") == std::string::npos)
    return 2;
  return forced.status().code() == Code::kUnavailable ? 0 : 3;
}

TEST(WithoutASandboxDeathTest, TheTextIsReadAndNothingIsRun) {
  if (call_filter().empty()) GTEST_SKIP() << "no filter of system calls for this processor";
  std::string folder = (fs::temp_directory_path() / "braid-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = join_path(folder, "run.sh"), made = join_path(folder, "made");
  const std::string text =
      cat("touch ", made, "; echo x > ", made, "\n", kTrainer, "trainer.nnodes=2\n");
  ASSERT_TRUE(write_file_atomic(path, text).ok());
  EXPECT_EXIT(::_exit(read_where_there_is_no_sandbox(path, text)), testing::ExitedWithCode(0), "");
  EXPECT_FALSE(path_exists(made));
  fs::remove_all(folder);
}

// What a script must not touch, and proof that it did not.
class Canaries {
 public:
  explicit Canaries(const std::string& folder) : folder_(folder) {
    for (const char* part : {"home/.ssh", "tree", "shared"})
      fs::create_directories(fs::path(folder) / part);
    write("home/.ssh/id", "SECRET-KEY");
    write("tree/kept", "kept");
    write("shared/kept", "kept");
    fs::permissions(fs::path(folder) / "shared", fs::perms::all);
    listen();
    process_ = ::fork();
    if (process_ == 0) {
      for (int fd = 3; fd < 256; ++fd) ::close(fd);
      while (true) ::pause();
    }
  }
  ~Canaries() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    ::close(socket_);
  }
  Canaries(const Canaries&) = delete;
  Canaries& operator=(const Canaries&) = delete;

  // Names, kinds, rights and contents of all files around the script, and of the folders that
  // everybody may write to.
  std::string state() const {
    std::string all;
    for (fs::recursive_directory_iterator entry(folder_), end; entry != end; ++entry) {
      struct stat info {};
      ::lstat(entry->path().c_str(), &info);
      all += cat(entry->path().string(), " ", info.st_mode, " ", info.st_size, "\n");
      if (S_ISREG(info.st_mode)) all += *read_file(entry->path().string());
    }
    for (const char* shared : {"/tmp", "/dev/shm", "/var/tmp"})
      for (fs::directory_iterator entry(shared), end; entry != end; ++entry)
        if (entry->path().filename().string().find("braid-escape") != std::string::npos)
          all += entry->path().string();
    return sha256_hex(all);
  }
  bool alive() const {
    return ::kill(process_, 0) == 0 && ::waitpid(process_, nullptr, WNOHANG) == 0;
  }
  // Whether anybody connected.
  bool reached() const { return ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK) >= 0; }
  int port() const { return port_; }
  pid_t process() const { return process_; }

 private:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(fs::path(folder_) / name) << text;
  }
  void listen() {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(::listen(socket_, 8), 0);
    ASSERT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }

  std::string folder_;
  int socket_ = -1, port_ = 0;
  pid_t process_ = -1;
};

struct Escape {
  const char* what;
  std::string text;  // @F is the folder of the canaries, @P the process, @N the port
};

// Every one would change, reach or end something if it ran with the rights of the user.
std::vector<Escape> escapes() {
  return {
      {"a program by its path", "/bin/rm -rf @F/tree @F/shared; /usr/bin/rm -rf @F/tree"},
      {"a login shell", "bash -lc 'rm -rf @F/tree'; bash -c '/bin/rm -rf @F/tree'"},
      {"another shell", "/bin/sh -c 'rm -rf @F/tree'; /bin/dash -c 'rm -rf @F/tree'"},
      {"command -p", "command -p rm -rf @F/tree; command -p cp /dev/null @F/shared/kept"},
      {"env -i", "env -i /bin/rm -rf @F/tree; env -i PATH=/bin:/usr/bin rm -rf @F/tree"},
      {"its own PATH", "export PATH=/bin:/usr/bin:/sbin; hash -r; rm -rf @F/tree; touch @F/x"},
      {"a redirection", "echo x > @F/tree/kept; : > @F/shared/kept; echo x >> @F/tree/new"},
      {"a redirection without a command", "> @F/tree/kept\n&> @F/shared/kept"},
      {"exec", "exec 3> @F/tree/kept; echo x >&3; exec /bin/rm -rf @F/tree"},
      {"noclobber", "set +C; echo x >| @F/tree/kept"},
      {"a document", "cat > @F/tree/kept <<EOF\nx\nEOF\ntee @F/shared/kept <<< x"},
      {"process substitution", "tee >(cat > @F/tree/kept) < <(echo x) > @F/shared/kept"},
      {"the network of bash",
       "exec 5<>/dev/tcp/127.0.0.1/@N; echo x >&5; echo x > /dev/udp/127.0.0.1/@N"},
      {"the network of programs",
       "/usr/bin/python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", @N))'; "
       "perl -MIO::Socket -e 'IO::Socket::INET->new(\"127.0.0.1:@N\")'; curl 127.0.0.1:@N"},
      {"other processes' roots", "for p in /proc/[0-9]*/root; do echo x > $p@F/tree/kept; done"},
      {"its own root",
       "echo x > /proc/self/root@F/tree/kept; echo x > /proc/1/root@F/tree/kept; "
       "echo x > /proc/1/cwd/x"},
      {"killing",
       "kill -9 @P; builtin kill -9 @P; /bin/kill -9 @P; builtin kill -9 -1; pkill -9 -u root"},
      {"a bomb of forks", ":(){ :|:& };:"},
      {"a bomb of memory", "x=x; while :; do x=$x$x; done"},
      {"a bomb of files", "while :; do cat /proc/self/maps >> @F/tree/kept; done"},
      {"an endless loop", "while :; do :; done"},
      {"endless output", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; echo y >&2; done"},
      {"mounts",
       "mount --bind / /tmp; mount -t proc p /proc; umount -l /; mount -t tmpfs t @F/tree"},
      {"another root",
       "chroot / /bin/rm -rf @F/tree; unshare -r /bin/rm -rf @F/tree; "
       "nsenter -t 1 -m /bin/rm -rf @F/tree"},
      {"a debugger",
       "gdb -p @P -batch -ex kill; strace -p @P; cat /proc/@P/mem > /tmp/braid-escape"},
      {"a sourced file",
       "source /etc/profile; . @F/home/.ssh/id; cat @F/home/.ssh/id > @F/shared/kept"},
      {"rights of others",
       "sudo rm -rf @F/tree; su -c 'rm -rf @F/tree'; /usr/bin/sudo -n rm -rf @F/tree; "
       "chmod u+s /bin/bash; passwd -d root"},
      {"shared memory",
       "echo x > /dev/shm/braid-escape; echo x > /tmp/braid-escape; echo x > "
       "/var/tmp/braid-escape"},
      {"the folder where it lies",
       "echo x > new; mkdir made; rm -f run.sh setup.py; cd ..; rm -rf tree shared"},
      {"a socket", "python3 -m http.server @N & nc -l -p @N & coproc nc 127.0.0.1 @N; wait %1"},
      {"what outlives it",
       "(trap '' HUP TERM INT; while :; do echo x > /tmp/braid-escape; done) & disown -a; setsid "
       "bash -c "
       "'while :; do :; done' & nohup bash -c 'while :; do :; done' &"},
      {"traps", "trap 'rm -rf @F/tree; echo x > @F/shared/kept' EXIT ERR DEBUG; false; kill -9 $$"},
      {"a pipe that nobody fills", "mkfifo /tmp/braid-escape; cat < /tmp/braid-escape"},
      {"Perl and Python",
       "/usr/bin/perl -e 'unlink glob \"@F/tree/*\"'; /usr/bin/env python3 -c 'import "
       "shutil; shutil.rmtree(\"@F/tree\")'"},
      {"a library before all others",
       "export LD_PRELOAD=@F/tree/kept LD_LIBRARY_PATH=@F; ls; enable -f @F/tree/kept x"},
      {"a relative program",
       "cd /bin; ./rm -rf @F/tree; cd @F/tree && rm -rf ./*; cd /usr/bin && ./env rm -rf "
       "@F/shared"},
      {"links",
       "ln -s @F/tree l; rm -rf l/*; ln -sf @F/tree/kept m; echo x > m; ln -s / r; rm -rf "
       "r@F/tree"},
      {"another loader",
       "/lib64/ld-linux-x86-64.so.2 /bin/rm -rf @F/tree; /lib/ld-linux-aarch64.so.1 /bin/rm -rf "
       "@F/tree"},
      {"history", "set -o history -H; echo rm -rf @F/tree; !!; fc -s"},
      {"settings of the kernel",
       "echo x > /proc/sys/kernel/core_pattern; echo 1 > /proc/sys/vm/drop_caches; echo b > "
       "/proc/sysrq-trigger; echo x > /sys/power/state"},
      {"devices",
       "cat /dev/zero > /dev/sda; dd if=/dev/zero of=/dev/mem; mknod d b 8 0; echo x > d"},
      {"environment", "rm -rf \"$BRAID_TEST_SECRET_FOLDER/tree\"; eval 'rm -rf @F/tree'"},
  };
}

std::string filled(std::string text, const std::string& mark, const std::string& by) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + by.size()))
    text.replace(at, mark.size(), by);
  return text;
}

TEST_P(ByEachWay, NoScriptChangesOrReachesAnything) {
  ::setenv("BRAID_TEST_SECRET_FOLDER", folder_.c_str(), 1);
  Canaries canaries(folder_);
  ASSERT_GE(escapes().size(), 30U);
  for (const Escape& escape : escapes()) {
    std::string text = filled(escape.text, "@F", folder_);
    text = filled(filled(text, "@P", cat(canaries.process())), "@N", cat(canaries.port()));
    const std::string path = join_path(project_, "run.sh");
    ASSERT_TRUE(write_file_atomic(path, text).ok());
    const std::string before = canaries.state();
    if (std::string(GetParam()) == "sandbox") {
      ScriptOptions options;
      options.deadline_s = 1.5;
      const auto script = RecordedScript::run(path, options);
      EXPECT_TRUE(script.ok()) << escape.what << ": " << script.status().message();
    } else {
      (void)read_launch_script(**find_framework("verl"), path, text, {"text", {}, 0});
    }
    EXPECT_EQ(canaries.state(), before) << escape.what;
    EXPECT_TRUE(canaries.alive()) << escape.what;
    EXPECT_FALSE(canaries.reached()) << escape.what;
    int status = 0;
    EXPECT_EQ(::waitpid(-1, &status, WNOHANG), 0) << escape.what << ": a child is left";
  }
  ::unsetenv("BRAID_TEST_SECRET_FOLDER");
}

// What a script can see of the machine, by what it would start with it.
TEST_P(ByEachWay, NoScriptSeesSecrets) {
  ::setenv("BRAID_TEST_SECRET", "SECRET-ENV", 1);
  Canaries canaries(folder_);
  add(".env", "SECRET-HIDDEN");
  const auto launch =
      read(cat("X=\"$(cat ", folder_, "/home/.ssh/id 2>/dev/null)\"\n",
               "Y=\"${BRAID_TEST_SECRET:-none}\"\nZ=\"$(cat .env 2>/dev/null)\"\n",
               "W=\"$(env)\"\nV=\"$(cat /proc/1/environ /proc/*/cmdline ",
               "/etc/shadow /etc/passwd 2>/dev/null | tr '\\0' ' ')\"\n", kTrainer,
               "trainer.a=\"$X\" trainer.b=\"$Y\" trainer.c=\"$Z\" ",
               "trainer.d=\"$W\" trainer.e=\"$V\" trainer.f=\"$(ls -a ~ / /tmp)\"\n"));
  ::unsetenv("BRAID_TEST_SECRET");
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  EXPECT_THAT(launch->keys, Contains(Pair("trainer.b", "none")));
  for (const auto& [key, value] : launch->keys) {
    EXPECT_THAT(value, testing::Not(HasSubstr("SECRET-"))) << key;
    EXPECT_THAT(value, testing::Not(HasSubstr("root:"))) << key;
  }
}

// A test that proves that the proof works: the same canaries notice a script that is really run.
TEST(Canaries, NoticeWhatAScriptDoes) {
  std::string name = (fs::temp_directory_path() / "braid-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  {
    Canaries canaries(name);
    const std::string before = canaries.state();
    std::ofstream(fs::path(name) / "tree/kept") << "x";
    EXPECT_NE(canaries.state(), before);
    EXPECT_TRUE(canaries.alive());
    EXPECT_FALSE(canaries.reached());
    ::kill(canaries.process(), SIGKILL);
    while (canaries.alive()) ::usleep(1000);
    EXPECT_FALSE(canaries.alive());
  }
  fs::remove_all(name);
}

}  // namespace
}  // namespace braid::inline foreign_scripts
