# frozen_string_literal: true

module AmplitudeExperiment
  # The version of this gem. The library that it loads must have the same major and minor one.
  VERSION = '0.1.0'
end
