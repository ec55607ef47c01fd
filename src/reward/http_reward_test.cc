// The http type against a server on the loopback device.
#include <gmock/gmock.h>
#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "reward/testing.h"

namespace braid::inline reward {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Serves POST /get_reward with a handler, on a free port, until destroyed.
class LoopbackServer {
 public:
  explicit LoopbackServer(httplib::Server::Handler handler, int port = 0) {
    server_.Post("/get_reward", std::move(handler));
    port_ = port;
    if (port == 0) port_ = server_.bind_to_any_port("127.0.0.1");
    const bool bound = port == 0 || server_.bind_to_port("127.0.0.1", port);
    EXPECT_TRUE(bound);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~LoopbackServer() {
    server_.stop();
    thread_.join();
  }
  int port() const { return port_; }
  RewardOptions options() const {
    RewardOptions options;
    options.name = "remote";
    options.type = "http";
    options.url = cat("http://127.0.0.1:", port_, "/get_reward");
    options.timeout_s = 5;
    options.outage_s = 0;
    return options;
  }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

void reply(httplib::Response& response, const Json& body) {
  response.set_content(body.dump(), "application/json");
}

TEST(HttpReward, SpeaksTheProtocol) {
  Json seen;
  std::string token;
  const LoopbackServer server([&](const httplib::Request& request, httplib::Response& response) {
    seen = Json::parse(request.body);
    token = request.get_header_value("Authorization");
    reply(response,
          {{"rewards", {0.0, 1.5}}, {"scores", {0, 1}}, {"extra_logs", {{"len", {3, 4}}}}});
  });
  RewardOptions options = server.options();
  options.auth_token = "opensesame";
  const auto outcomes = score_with(
      options, {make_sample(0, "abc", {{"label", "x"}, {"other", 1}}), make_sample(1, "de")});
  EXPECT_THAT(brief(outcomes), ElementsAre("0", "1.5"));
  EXPECT_EQ(outcomes[1].logs, (std::map<std::string, double>{{"len", 4}, {"scores", 1}}));
  EXPECT_EQ(seen, Json({{"query", {"Q0 abc", "Q1 de"}},
                        {"prompts", {"Q0 ", "Q1 "}},
                        {"labels", {"x", nullptr}}}));
  EXPECT_EQ(token, "Bearer opensesame");
}

TEST(HttpReward, BatchesOverWorkersKeepTheOrder) {
  std::atomic<int> requests{0};
  const LoopbackServer server([&](const httplib::Request& request, httplib::Response& response) {
    ++requests;
    Json rewards = Json::array();
    const Json body = Json::parse(request.body);
    for (const Json& prompt : body["prompts"])
      rewards.push_back(std::stoi(prompt.get<std::string>().substr(1)));
    reply(response, {{"rewards", rewards}});
  });
  RewardOptions options = server.options();
  options.batch_samples = 3;
  options.workers = 2;
  std::vector<RewardSample> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(make_sample(i, "r"));
  EXPECT_THAT(brief(score_with(options, samples)),
              ElementsAre("0", "1", "2", "3", "4", "5", "6", "7"));
  EXPECT_EQ(requests, 3);
}

TEST(HttpReward, ServerErrorIsTriedAgain) {
  int requests = 0;
  const LoopbackServer server([&](const httplib::Request&, httplib::Response& response) {
    if (++requests == 1) {
      response.status = 500;
      return;
    }
    reply(response, {{"rewards", {0.25}}});
  });
  RewardOptions options = server.options();
  options.outage_s = 60;
  EXPECT_THAT(brief(score_with(options, {make_sample(0, "x")})), ElementsAre("0.25"));
  EXPECT_EQ(requests, 2);
}

TEST(HttpReward, LastingServerErrorShowsStatusAndBody) {
  int requests = 0;
  const LoopbackServer server([&](const httplib::Request&, httplib::Response& response) {
    ++requests;
    response.status = 503;
    response.set_content("model is loading", "text/plain");
  });
  RewardOptions options = server.options();
  options.outage_s = 0.25;
  const auto outcomes = score_with(options, {make_sample(0, "x")});
  EXPECT_THAT(brief(outcomes), ElementsAre("error"));
  EXPECT_THAT(outcomes[0].error, AllOf(HasSubstr("503"), HasSubstr("model is loading"),
                                       HasSubstr("2 tries in 0 s, outage_s is 0.25")));
  EXPECT_EQ(requests, 2);
}

TEST(HttpReward, RefusedRequestIsNotTriedAgain) {
  int requests = 0;
  const LoopbackServer server([&](const httplib::Request&, httplib::Response& response) {
    ++requests;
    response.status = 401;
  });
  RewardOptions options = server.options();
  options.outage_s = 60;
  EXPECT_THAT(score_with(options, {make_sample(0, "x")})[0].error, HasSubstr("401"));
  EXPECT_EQ(requests, 1);
}

TEST(HttpReward, SlowAnswerIsATimeout) {
  std::mutex mutex;
  std::condition_variable wake;
  bool released = false;
  const LoopbackServer server([&](const httplib::Request&, httplib::Response& response) {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return released; });
    reply(response, {{"rewards", {1}}});
  });
  RewardOptions options = server.options();
  options.timeout_s = 0.2;
  const auto outcomes = score_with(options, {make_sample(0, "x")});
  {
    const std::lock_guard lock(mutex);
    released = true;
  }
  wake.notify_all();
  EXPECT_THAT(brief(outcomes), ElementsAre("timeout"));
  EXPECT_THAT(outcomes[0].error, HasSubstr("0.2 s"));
}

TEST(HttpReward, DrippingAnswerIsATimeoutToo) {
  std::atomic<bool> stopped{false};
  const LoopbackServer server([&](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("application/json", [&](size_t, httplib::DataSink& sink) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return !stopped && sink.write(" ", 1);
    });
  });
  RewardOptions options = server.options();
  options.timeout_s = 0.3;
  const auto outcomes = score_with(options, {make_sample(0, "x")});
  stopped = true;
  EXPECT_THAT(brief(outcomes), ElementsAre("timeout"));
}

TEST(HttpReward, MalformedAnswersAreErrors) {
  std::string body;
  const LoopbackServer server([&](const httplib::Request&, httplib::Response& response) {
    response.set_content(body, "application/json");
  });
  const auto error_for = [&](const std::string& text) {
    body = text;
    return score_with(server.options(), {make_sample(0, "x")})[0].error;
  };
  EXPECT_THAT(error_for("<html>"), HasSubstr("<html>"));
  EXPECT_THAT(error_for("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_for(R"({"reward": 1})"), HasSubstr("no 'rewards'"));
  EXPECT_THAT(error_for(R"({"rewards": [1, 2]})"), HasSubstr("1 numbers"));
  EXPECT_THAT(error_for(R"({"rewards": [null]})"), HasSubstr("null"));
  EXPECT_THAT(error_for(R"({"rewards": [true]})"), HasSubstr("true"));
  EXPECT_EQ(error_for(R"({"rewards": [[0.5]]})"), "");
}

TEST(HttpReward, NobodyListensIsAnError) {
  RewardOptions options;
  options.type = "http";
  options.outage_s = 0;
  {
    const LoopbackServer server([](const httplib::Request&, httplib::Response&) {});
    options.url = server.options().url;
  }
  const auto outcomes = score_with(options, {make_sample(0, "x"), make_sample(1, "y")});
  EXPECT_THAT(brief(outcomes), ElementsAre("error", "error"));
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr(options.url), HasSubstr("cannot connect")));
}

TEST(HttpReward, AServerThatComesBackIsWaitedForAndSaid) {
  std::optional<LoopbackServer> server;
  const auto answer = [](const httplib::Request&, httplib::Response& response) {
    reply(response, {{"rewards", {0.5}}});
  };
  server.emplace(answer);
  RewardOptions options = server->options();
  const int port = server->port();
  server.reset();
  options.outage_s = 60;
  testing::internal::CaptureStderr();
  std::thread restart([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    server.emplace(answer, port);
  });
  EXPECT_THAT(brief(score_with(options, {make_sample(0, "x")})), ElementsAre("0.5"));
  restart.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("cannot connect"), HasSubstr("trying again for up to 60 s"),
                    HasSubstr("answers again after")));
}

TEST(HttpReward, AnOutageEndsWithTheScoring) {
  RewardOptions options;
  options.type = "http";
  options.outage_s = 1e6;
  {
    const LoopbackServer server([](const httplib::Request&, httplib::Response&) {});
    options.url = server.options().url;
  }
  const auto reward = make_reward(options);
  ASSERT_TRUE(reward.ok());
  ScoreWatch watch = quiet_watch();
  std::atomic<int> questions{0};
  watch.ended = [&] { return ++questions > 20; };
  const auto outcomes = (*reward)->score({make_sample(0, "x")}, watch);
  ASSERT_TRUE(outcomes.ok());
  EXPECT_THAT(brief(*outcomes), ElementsAre("skipped"));
}

}  // namespace
}  // namespace braid::inline reward
