# frozen_string_literal: true

require_relative 'lib/libexperiment/version'

# Packs the library that `build-gem` has put beside the Ruby files: the gem is that of one platform.
Gem::Specification.new do |spec|
  spec.name = 'libexperiment'
  spec.version = AmplitudeExperiment::VERSION
  spec.summary = 'Variants from Amplitude Experiment, each fetch back within the time you set'
  spec.description = 'A native client for remote evaluation with the names of the gem amplitude-experiment: ' \
                     'bounded latency, errors that are told, safe under fork, threads and fibers.'
  spec.authors = ['The libexperiment authors']
  spec.licenses = ['MIT', 'Apache-2.0']
  spec.platform = Gem::Platform.local
  spec.required_ruby_version = '>= 3.1'
  spec.add_runtime_dependency 'ffi', '>= 1.15', '< 2'
  spec.files = Dir.chdir(__dir__) { Dir['lib/**/*.{rb,so}', 'sig/**/*.rbs', 'README.md', 'LICENSE-*'] }
  spec.metadata['rubygems_mfa_required'] = 'true'
end
