# frozen_string_literal: true

require_relative 'helper'
require 'tmpdir'

# Which library is loaded is never guessed, and one that does not fit is named.
class LoadingTest < ExperimentTest
  LOAD = "require 'libexperiment'; puts File.realpath(File.read('/proc/self/maps')[%r{/\\S*libexperiment\\S*}])"

  # A library that says to be of another version.
  def library_of(version, directory)
    source = File.join(directory, 'other.c')
    library = File.join(directory, 'libexperiment-other.so')
    File.write(source, "const char *exp_version(void) { return \"#{version}\"; }\n")
    assert system(ENV.fetch('CC', 'cc'), '-shared', '-fPIC', source, '-o', library)
    library
  end

  def test_the_library_that_is_named_is_loaded
    output, status = run_ruby(LOAD, 'EXPERIMENT_LIBRARY' => ENV.fetch('EXPERIMENT_LIBRARY'))
    assert_predicate status, :success?, output
    assert_equal File.realpath(ENV.fetch('EXPERIMENT_LIBRARY')), output.chomp
  end

  def test_a_gem_without_its_copy_takes_the_systems
    directory = File.dirname(ENV.fetch('EXPERIMENT_LIBRARY'))
    output, = run_ruby(LOAD, 'EXPERIMENT_LIBRARY' => nil, 'LD_LIBRARY_PATH' => directory)
    assert_equal File.realpath(ENV.fetch('EXPERIMENT_LIBRARY')), output.chomp
  end

  def test_nothing_else_is_tried_when_the_named_one_is_not_there
    output, status = run_ruby(LOAD, 'EXPERIMENT_LIBRARY' => '/no/such/libexperiment.so')
    refute_predicate status, :success?
    assert_includes output, 'EXPERIMENT_LIBRARY names no file: /no/such/libexperiment.so (LoadError)'
  end

  def test_a_library_of_another_version_is_an_error_that_says_both
    Dir.mktmpdir do |directory|
      ['0.2.0', '1.1.0'].each do |other|
        output, status = run_ruby(LOAD, 'EXPERIMENT_LIBRARY' => library_of(other, directory))
        refute_predicate status, :success?
        assert_includes output, "libexperiment #{VERSION} (the gem) cannot use libexperiment #{other} (the library, "
      end
    end
  end

  # A patch may differ: what is missed then are the functions.
  def test_a_patch_may_differ
    Dir.mktmpdir do |directory|
      output, = run_ruby(LOAD, 'EXPERIMENT_LIBRARY' => library_of("#{VERSION[/\d+\.\d+/]}.99", directory))
      assert_match(/exp_\w+.*not found/i, output)
    end
  end

  def test_a_library_for_glibc_is_refused_on_musl_in_one_sentence
    on_musl = "RbConfig::CONFIG['host_os'] = 'linux-musl'; begin; #{LOAD}; rescue LoadError => e; puts e.message; end"
    library = ENV.fetch('EXPERIMENT_LIBRARY')
    output, = run_ruby(on_musl, 'EXPERIMENT_LIBRARY' => library)
    expected = "#{library} is a library for glibc, and this Ruby runs on musl: install the gem for " \
               "#{RbConfig::CONFIG['host_cpu']}-linux-musl, or name a library for musl by EXPERIMENT_LIBRARY"
    assert_equal expected, output.chomp
  end

  VENDOR = 'module AmplitudeExperiment; class FetchError < StandardError; end; class RemoteEvaluationClient; end; end'

  def test_the_vendors_gem_and_this_one_do_not_mix
    output, status = run_ruby("#{VENDOR}; require 'libexperiment'")
    refute_predicate status, :success?
    assert_includes output, 'load only one of them (LoadError)'
    output, status = run_ruby("require 'libexperiment'; #{VENDOR}")
    refute_predicate status, :success?
    assert_includes output, 'superclass mismatch for class FetchError (TypeError)'
  end

  def test_the_program_of_the_readme_runs
    program = File.read(File.expand_path('../README.md', __dir__))[/^```ruby\n(.*?)^```$/m, 1]
    assert_operator program.lines.size, :<=, 15
    output, status = run_ruby(program.sub('Config.new(', "Config.new(server_url: #{play({}).inspect}, "))
    assert_predicate status, :success?, output
    assert_match(/\A(on|off)\n\z/, output)
  end
end
