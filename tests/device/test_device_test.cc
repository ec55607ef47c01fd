// The test device itself: it computes what the CPU does, and what is on the wrong side shows.
#include "test_device.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.h"
#include "device/device_copy.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(TestDevice, ComputesTheBitsOfTheCpu) {
  const at::Device device = install_test_device();
  const at::Tensor a = at::randn({5, 7}), b = at::randn({7, 3});
  const auto run = [&](at::Device on) {
    const at::Tensor x = a.clone().to(on).detach().requires_grad_(),
                     w = b.clone().to(on).detach().requires_grad_();
    const at::Tensor y = at::matmul(x, w).tanh();
    y.slice(0, 1, 4).sum().backward();
    return std::vector<at::Tensor>{y.detach(), x.grad(), w.grad()};
  };
  const auto expected = run(at::kCPU), actual = run(device);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].device(), device);
    EXPECT_TRUE(at::equal(actual[i].to(at::kCPU), expected[i])) << i;
  }
  EXPECT_GT(test_device_counts().operators, 0);
}

// The fallback of torch alone would take an index from the host.
TEST(TestDevice, RefusesTensorsOfSeveralDevices) {
  const at::Device device = install_test_device();
  const at::Tensor x = at::randn({4, 2}).to(device);
  const std::string text = error_of([&] { at::index_select(x, 0, at::arange(2)); });
  EXPECT_THAT(text, HasSubstr("index_select: tensors on different devices"));
  EXPECT_THAT(error_of([&] { x + at::randn({4, 2}); }), HasSubstr("braidtest:0 and cpu"));
  EXPECT_THAT(error_of([&] {
                x + at::randn({4, 2}).to(at::Device(device.type(), 1));
              }),
              HasSubstr("braidtest:0 and braidtest:1"));
  EXPECT_EQ(error_of([&] { x + at::full({}, 2.0); }), "");  // a number may come from the host
}

TEST(TestDeviceDeathTest, HostCodeMayNotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const at::Tensor x = at::zeros({4}, at::TensorOptions(install_test_device()));
  EXPECT_DEATH(EXPECT_EQ(*x.const_data_ptr<float>(), 0), "host code touched memory of the test");
  EXPECT_DEATH(*x.mutable_data_ptr<float>() = 1, "host code touched memory of the test");
}

TEST(TestDevice, MemoryIsGivenBack) {
  const at::Device device = install_test_device();
  const int64_t before = test_device_counts().bytes_in_use;
  {
    const at::Tensor x = at::empty({1000}, at::TensorOptions(device));
    EXPECT_GE(test_device_counts().bytes_in_use, before + 4000);
  }
  EXPECT_EQ(test_device_counts().bytes_in_use, before);
}

// Who reads before waiting reads what was there.
TEST(TestDevice, CopiesWithoutBlockingHappenWhenTheirStreamIsWaitedFor) {
  const at::Device device = install_test_device();
  const c10::impl::VirtualGuardImpl streams(device.type());
  const at::Tensor pinned = at::full({3}, 7.0).pin_memory();
  const at::Tensor x = at::zeros({3}, at::TensorOptions(device));
  const c10::Stream side = streams.getNewStream(device);
  c10::Event copied(device.type());
  {
    const c10::StreamGuard guard(side);
    x.copy_(pinned, /*non_blocking=*/true);
    copied.record(side);
  }
  EXPECT_FALSE(copied.query());
  EXPECT_EQ(x.sum().item<float>(), 0);
  copied.block(streams.getStream(device));
  EXPECT_EQ(x.sum().item<float>(), 21);
  const at::Tensor back = at::empty({3}, at::TensorOptions().pinned_memory(true));
  back.fill_(0);
  back.copy_(x, /*non_blocking=*/true);
  EXPECT_EQ(back.sum().item<float>(), 0);
  finish_work(device);
  EXPECT_EQ(back.sum().item<float>(), 21);
}

TEST(DeviceCopy, PassesThroughPinnedMemoryOnAStreamOfItsOwn) {
  const at::Device device = install_test_device();
  for (const int64_t rows : {0, 3, 5000, 3 << 20}) {  // the last in several pieces
    SCOPED_TRACE(rows);
    const at::Tensor host = at::arange(rows * 4).view({4, rows}).t();  // not contiguous
    const TestDeviceCounts before = test_device_counts();
    const StartedCopy started = start_copy(host, at::Device(device.type()));
    EXPECT_EQ(started.tensor.device(), device);
    if (rows > 0) {
      EXPECT_FALSE(started.copied->query());
    }
    const at::Tensor there = finish_copy(started);
    const at::Tensor back = to_host(there * 1);
    EXPECT_TRUE(at::equal(back, host));
    EXPECT_EQ(to_device(there, device).unsafeGetTensorImpl(), there.unsafeGetTensorImpl());
    const TestDeviceCounts after = test_device_counts();
    EXPECT_EQ(after.pinned_bytes - before.pinned_bytes, 2 * static_cast<int64_t>(host.nbytes()));
    if (rows > 0) {
      EXPECT_GE(after.deferred_copies - before.deferred_copies, 2);
    }
  }
  const at::Tensor host = at::arange(3);
  EXPECT_EQ(to_device(host, at::kCPU).unsafeGetTensorImpl(), host.unsafeGetTensorImpl());
  EXPECT_EQ(to_host(host).unsafeGetTensorImpl(), host.unsafeGetTensorImpl());
}

// Into memory that what came before may still use.
TEST(DeviceCopy, FillsMemoryThatIsThere) {
  const at::Device device = install_test_device();
  for (const bool pinned : {true, false}) {
    const at::Tensor host = at::full({8}, 5.0);
    const at::Tensor there = at::zeros({8}, at::TensorOptions(device));
    const StartedCopy started = start_copy_into(there, pinned ? host.pin_memory() : host);
    EXPECT_EQ(there.sum().item<float>(), 0);
    finish_copy(started);
    EXPECT_EQ(there.sum().item<float>(), 40);
  }
}

// A copy that nobody waited for is not there yet.
TEST(DeviceCopy, IsWaitedForByWhatUsesIt) {
  const at::Device device = install_test_device();
  const at::Tensor host = at::full({8}, 5.0).pin_memory();
  const StartedCopy started = start_copy(host, device);
  started.tensor.zero_();  // on the other stream, before the copy
  EXPECT_EQ(started.tensor.sum().item<float>(), 0);
  EXPECT_EQ(finish_copy(started).sum().item<float>(), 40);
}

TEST(ParseDevice, ReadsNamesAndNumbers) {
  const at::Device device = install_test_device();
  EXPECT_EQ(*parse_device("cpu", "device"), at::Device(at::kCPU));
  EXPECT_EQ(*parse_device("braidtest", "device"), device);
  EXPECT_EQ(*parse_device("braidtest:1", "device"), at::Device(device.type(), 1));
  EXPECT_EQ(
      parse_device("braidtest:2", "device").status().message(),
      "device: braidtest:2: this machine has 2 braidtest devices, braidtest:0 to braidtest:1");
  EXPECT_EQ(parse_device("tpu", "device").status().message(),
            "device: 'tpu' is not cpu, cuda or cuda:N");
  EXPECT_EQ(parse_device("cuda:x", "--device").status().message(),
            "--device: 'cuda:x' is not cpu, cuda or cuda:N");
}

}  // namespace
}  // namespace braid
