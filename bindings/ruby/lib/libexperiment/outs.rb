# frozen_string_literal: true

module AmplitudeExperiment
  # The pointers through which the library hands out what then has to be freed, for one call at a time.
  #
  # What it handed out is here and nowhere else: whoever is interrupted (Thread#kill, Timeout) between any
  # two lines leaves nothing behind that `clear` would not find. It also spares each fetch five objects
  # with finalisers.
  # @api private
  class Outs
    NAMES = %i[client user options pending arrived variants deployed text error].freeze
    POSITIONS = NAMES.each_with_index.to_h { |name, index| [name, index * FFI::Pointer.size] }.freeze

    def initialize
      @memory = FFI::MemoryPointer.new(:pointer, NAMES.size)
      @places = POSITIONS.transform_values { |position| @memory + position }
    end

    # Where the library shall write; what is there is freed.
    def at(name)
      self[name] = nil
      @places[name]
    end

    def [](name)
      @memory.get_pointer(POSITIONS[name])
    end

    # For what a function returns instead of writing it.
    def []=(name, pointer)
      free(take(name))
      @memory.put_pointer(POSITIONS[name], pointer)
    end

    # Gives the object away: whoever takes it frees it.
    def take(name)
      pointer = self[name]
      @memory.put_pointer(POSITIONS[name], nil)
      pointer
    end

    def clear
      NAMES.each { |name| free(take(name)) }
    end

    private

    def free(pointer)
      Native.exp_free(pointer) unless pointer.null?
    end
  end
  private_constant :Outs
end
