# frozen_string_literal: true

require_relative 'helper'
require 'rubygems/package'
require 'tmpdir'

# The gem is for the platform of the library in it, and for no other.
class GemTest < ExperimentTest
  BUILD = File.expand_path('../build-gem', __dir__)

  # The gem with that library, as its metadata in YAML: older RubyGems read less of it.
  def metadata_of(library)
    Dir.mktmpdir do |directory|
      output, status = Open3.capture2e(RbConfig.ruby, BUILD, library, directory)
      assert_predicate status, :success?, output
      gem = Dir[File.join(directory, '*.gem')].first
      File.open(gem, 'rb') do |file|
        entry = Gem::Package::TarReader.new(file).find { |one| one.full_name == 'metadata.gz' }
        return [File.basename(gem), Gem::Util.gunzip(entry.read)]
      end
    end
  end

  # The first bytes of a library, which is all that is looked at, and what it was linked to.
  def library(machine, text, directory)
    File.join(directory, 'libexperiment.so').tap do |path|
      File.binwrite(path, "\x7fELF#{"\0" * 14}#{[machine].pack('S<')}#{text}")
    end
  end

  def test_the_gem_says_that_its_library_is_for_glibc
    name, metadata = metadata_of(ENV.fetch('EXPERIMENT_LIBRARY'))
    assert_match(/-linux-gnu\.gem\z/, name)
    assert_match(/^platform: \w+-linux-gnu$/, metadata)
    assert_match(/^required_rubygems_version: .*?\n.*?">="\n.*?version: 3\.3\.22$/m, metadata)
  end

  def test_the_platform_is_that_of_the_library_and_not_of_the_machine
    Dir.mktmpdir do |directory|
      { [62, 'GLIBC_2.25'] => 'x86_64-linux-gnu', [62, 'libc.so'] => 'x86_64-linux-musl',
        [183, 'GLIBC_2.25'] => 'aarch64-linux-gnu', [183, 'libc.so'] => 'aarch64-linux-musl' }.each do |what, platform|
        name, metadata = metadata_of(library(*what, directory))
        assert_equal "libexperiment-#{VERSION}-#{platform}.gem", name
        assert_match(/^platform: #{platform}$/, metadata)
      end
    end
  end

  # By the rule of the RubyGems that the gem asks for; earlier ones do not read "gnu" in a text.
  def test_musl_does_not_take_the_gem_for_glibc
    gnu, musl = %w[gnu musl].map { |libc| Gem::Platform.new(['x86_64', 'linux', libc]) }
    refute_operator gnu, :===, musl
    refute_operator musl, :===, gnu
    assert_operator gnu, :===, Gem::Platform.new(%w[x86_64 linux]) # as a Ruby on glibc names its system
  end
end
