#include "calibrate/least_squares.h"

#include <algorithm>
#include <cmath>

namespace braid::inline calibrate {
namespace {

using Matrix = std::vector<std::vector<double>>;

struct Normal {
  Matrix matrix;
  std::vector<double> vector;
  double cost = 0;
};

double robust_cost(double scaled, double tail) {
  return 0.5 * (tail + 1) * std::log1p(scaled * scaled / tail);
}

Normal normal_equations(const LeastSquaresProblem& problem, const std::vector<double>& at,
                        double tail) {
  const size_t n = at.size();
  Normal normal{Matrix(n, std::vector<double>(n, 0)), std::vector<double>(n, 0), 0};
  for (int i = 0; i < problem.residuals; ++i) {
    const Residual residual = problem.residual(i, at);
    const double scaled = residual.value / problem.noise[i];
    const double weight =
        (tail + 1) / (tail + scaled * scaled) / (problem.noise[i] * problem.noise[i]);
    normal.cost += robust_cost(scaled, tail);
    for (const auto& [row, slope] : residual.slopes) {
      normal.vector[row] += weight * slope * residual.value;
      for (const auto& [column, other] : residual.slopes)
        normal.matrix[row][column] += weight * slope * other;
    }
  }
  for (size_t k = 0; k < n; ++k) {
    const double precision = 1 / (problem.prior_spread[k] * problem.prior_spread[k]);
    normal.matrix[k][k] += precision;
    normal.vector[k] -= precision * at[k];
    normal.cost += 0.5 * precision * at[k] * at[k];
  }
  return normal;
}

// Lower factor of a symmetric positive definite matrix, in place.
void factorise(Matrix* a) {
  const size_t n = a->size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < j; ++k)
      for (size_t i = j; i < n; ++i) (*a)[i][j] -= (*a)[i][k] * (*a)[j][k];
    const double pivot = std::sqrt(std::max((*a)[j][j], 1e-12));
    for (size_t i = j; i < n; ++i) (*a)[i][j] /= pivot;
  }
}

std::vector<double> solve(Matrix a, std::vector<double> b) {
  factorise(&a);
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

std::vector<double> moved(const std::vector<double>& at, const std::vector<double>& step) {
  std::vector<double> next = at;
  for (size_t i = 0; i < at.size(); ++i) next[i] += std::clamp(step[i], -1.0, 1.0);
  return next;
}

}  // namespace

std::vector<double> solve_least_squares(const LeastSquaresProblem& problem,
                                        const LeastSquaresOptions& options) {
  std::vector<double> at(problem.prior_spread.size(), 0);
  if (at.empty()) return at;
  double damping = 1e-3;
  Normal normal = normal_equations(problem, at, options.tail);
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    Matrix damped = normal.matrix;
    for (size_t k = 0; k < at.size(); ++k) damped[k][k] *= 1 + damping;
    const std::vector<double> next = moved(at, solve(std::move(damped), normal.vector));
    Normal tried = normal_equations(problem, next, options.tail);
    const double gain = normal.cost - tried.cost;
    if (gain <= 0) {
      damping *= 10;
      if (damping > 1e6) break;
      continue;
    }
    at = next;
    normal = std::move(tried);
    damping = std::max(damping / 5, 1e-6);
    if (gain < 1e-6 * normal.cost) break;
  }
  return at;
}

}  // namespace braid::inline calibrate
