import type { LogFields, Logger } from '../../base/log.ts'
import type { OnIgnored } from '../../oci/normalize-spec.ts'

/** Logs each word of a request that is passed over. `fields` say whose request it is. */
export function logIgnored(log: Logger, fields: LogFields): OnIgnored {
  return (field, value) => log.warn('word of the specification ignored', { ...fields, field, value })
}
