// Layouts of jobs whose training has to be that of one process.
#pragma once

#include <string>
#include <vector>

#include "runs/job_testing.h"

namespace braid {

std::vector<LayoutCase> layouts();
// REQUIRES: layouts() has one of the name.
const LayoutCase& layout_named(const std::string& name);
// Every algorithm without a critic in the ways to place it; a few of them in the fast tier. Of
// preference losses those that differ in more than a formula: ipo takes means over tokens, hinge
// has pairs without a gradient.
std::vector<LayoutCase> algorithm_layouts();
// The layout with the devices of every mesh in a random order of its own. Several cannot all be the
// ascending one.
LayoutCase reordered(const LayoutCase& layout);
// Devices in another order than by number, another one in each call.
std::vector<LayoutCase> orders();
// A plan that nobody thought of: every call has a mesh and a layout of its own.
LayoutCase random_layout(int number);

}  // namespace braid
