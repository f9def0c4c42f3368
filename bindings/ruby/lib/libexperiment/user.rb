# frozen_string_literal: true

require 'json'

module AmplitudeExperiment
  # What is known of a user. The service decides by it. A fetch reads it once, at its begin, and never
  # changes it.
  class User
    # Every field, by its name in the service's JSON.
    FIELDS = %i[user_id device_id country region dma city language platform version os device_manufacturer
                device_brand device_model carrier library ip_address user_properties groups group_properties
                cohort_ids group_cohort_ids].freeze

    # @!attribute [rw] user_id
    #   @return [String, nil] who the user is; likewise all up to ip_address
    # @!attribute [rw] user_properties
    #   @return [Hash, nil] anything that has a JSON form
    # @!attribute [rw] groups
    #   @return [Hash{String => Array<String>}, nil] names of groups by their type
    # @!attribute [rw] group_properties
    #   @return [Hash{String => Hash{String => Hash}}, nil] properties by type and name of a group
    # @!attribute [rw] cohort_ids
    #   @return [Array<String>, nil]
    # @!attribute [rw] group_cohort_ids
    #   @return [Hash{String => Hash{String => Array<String>}}, nil] by type and name of a group
    attr_accessor(*FIELDS)

    # By the field.
    SETTERS = FIELDS.to_h { |name| [name, :"#{name}="] }.freeze
    private_constant :SETTERS

    # @param fields [Hash] any of FIELDS, as keywords
    # @raise [ArgumentError] a keyword is none of FIELDS
    def initialize(**fields)
      unknown = fields.keys.reject { |name| SETTERS.key?(name) }
      raise ArgumentError, "unknown fields of a user: #{unknown.join(', ')}" unless unknown.empty?

      fields.each { |name, value| public_send(SETTERS[name], value) }
    end

    # Puts a group into cohorts, as the vendor's gem does.
    #
    # @param group_type [String]
    # @param group_name [String]
    # @param cohort_ids [Array<String>]
    def add_group_cohort_ids(group_type, group_name, cohort_ids)
      self.group_cohort_ids ||= {}
      (group_cohort_ids[group_type] ||= {})[group_name] = cohort_ids
    end

    # @return [Hash{Symbol => Object}] the fields that are known
    def as_json(_options = nil)
      { user_id:, device_id:, country:, region:, dma:, city:, language:, platform:, version:, os:,
        device_manufacturer:, device_brand:, device_model:, carrier:, library:, ip_address:, user_properties:,
        groups:, group_properties:, cohort_ids:, group_cohort_ids: }.compact
    end

    # @return [String] the same as JSON
    def to_json(*options)
      as_json.to_json(*options)
    end

    # The JSON of whatever stands for a user in a fetch.
    #
    # @param user [User, Hash, nil] nil: one of whom nothing is known
    # @raise [InvalidArgumentError] there is no JSON of it: an infinite number, a text that is no UTF-8
    # @api private
    def self.json_of(user)
      JSON.generate(user.is_a?(User) ? user.as_json : (user || {}), max_nesting: MAX_NESTING)
    rescue JSON::JSONError, EncodingError => e
      raise Failure.of(Native::INVALID_ARGUMENT, "the user has no JSON form: #{e.message}")
    end

    # The library's limit.
    MAX_NESTING = 128
    private_constant :MAX_NESTING
  end
end
