# frozen_string_literal: true

module AmplitudeExperiment
  # The places through which the library hands out what then has to be freed. Each is written once, then all
  # are cleared.
  #
  # What was handed out is here and nowhere else: whoever is interrupted (Thread#kill, Timeout) between any
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

    # Where the library shall write.
    def at(name) = @places.fetch(name)

    def [](name)
      @memory.get_pointer(POSITIONS.fetch(name))
    end

    # For what a function returns instead of writing it.
    def []=(name, pointer)
      @memory.put_pointer(POSITIONS.fetch(name), pointer)
    end

    # Gives the object away: whoever takes it frees it.
    def take(name)
      pointer = self[name]
      self[name] = nil
      pointer
    end

    # Gives all away, to places of their own.
    # @return [Outs]
    def move
      moved = Outs.new
      NAMES.each { |name| moved[name] = take(name) }
      moved
    end

    # Frees all that is here. The places are empty before: nothing can be freed twice.
    def clear
      addresses = @memory.read_array_of_ulong(NAMES.size)
      @memory.clear
      addresses.each { |address| Native.free_at(address) unless address.zero? }
    end
  end
  private_constant :Outs
end
