// A small dense solver for robust regularised least squares: Levenberg-Marquardt on residuals with
// sparse derivatives, reweighted for outliers, with a Gaussian prior on every parameter.
// Deterministic; pure.
#pragma once

#include <functional>
#include <vector>

namespace braid::inline calibrate {

// A residual with the derivatives that are not zero.
struct Residual {
  double value = 0;                            // measured minus predicted
  std::vector<std::pair<int, double>> slopes;  // (parameter, derivative of the prediction)
};

struct LeastSquaresProblem {
  int residuals = 0;
  std::vector<double>
      prior_spread;           // standard deviation of each parameter around 0, one per parameter
  std::vector<double> noise;  // expected standard deviation of each residual
  std::function<Residual(int index, const std::vector<double>& parameters)> residual;
};

struct LeastSquaresOptions {
  int iterations = 25;
  double tail = 3;  // degrees of freedom of the Student-t noise; small = outliers count little
};

// Parameters that minimise the posterior cost, starting from 0. Solves the normal equations by
// Cholesky factorisation.
std::vector<double> solve_least_squares(const LeastSquaresProblem& problem,
                                        const LeastSquaresOptions& options = {});

}  // namespace braid::inline calibrate
