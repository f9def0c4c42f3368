# frozen_string_literal: true

require_relative 'lib/libexperiment/version'

# Packs the library that `build-gem` has put beside the Ruby files. The gem is for the platform of that, whatever
# packs it. Without "gnu" or "musl" RubyGems would take it for both.
library = File.join(__dir__, 'lib/libexperiment/libexperiment.so')
platform = Gem::Platform.local
if File.file?(library)
  code = File.binread(library)
  cpu = { 62 => 'x86_64', 183 => 'aarch64' }.fetch(code.unpack1('@18S<')) # ELF's e_machine
  # As a list: from a text RubyGems drops "gnu" before 3.3.21.
  platform = Gem::Platform.new([cpu, 'linux', code.include?('GLIBC_2.') ? 'gnu' : 'musl'])
end

Gem::Specification.new do |spec|
  spec.name = 'libexperiment'
  spec.version = AmplitudeExperiment::VERSION
  spec.summary = 'Variants from Amplitude Experiment, each fetch back within the time you set'
  spec.description = 'A native client for remote evaluation with the names of the gem amplitude-experiment: ' \
                     'bounded latency, errors that are told, safe under fork, threads and fibers.'
  spec.authors = ['The libexperiment authors']
  spec.licenses = ['MIT', 'Apache-2.0']
  spec.platform = platform
  spec.required_ruby_version = '>= 3.1'
  spec.required_rubygems_version = '>= 3.3.22' # which tells gnu from musl
  spec.add_runtime_dependency 'ffi', '>= 1.15', '< 2'
  spec.files = Dir.chdir(__dir__) { Dir['lib/**/*.{rb,so}', 'sig/**/*.rbs', 'README.md', 'LICENSE-*'] }
  spec.metadata['rubygems_mfa_required'] = 'true'
end
