import type { Method, MethodTable } from '../../rpc/method.ts'
import type { Entry, MessageType, ServiceDefinition, ServiceEntries } from './entry.ts'
import { type WrapperDependencies, wrap } from './wrapper.ts'

/** The methods of one service as the framings need them: full name (`grpc.Health/Check`) to wrapped method. */
export function methodsOf<Definition extends ServiceDefinition>(
  definition: Definition,
  entries: ServiceEntries<Definition>,
  dependencies: WrapperDependencies,
): MethodTable {
  const methods = new Map<string, Method>()
  for (const [key, method] of Object.entries(definition.methods)) {
    const name = `${definition.fullName}/${method.name}`
    // `ServiceEntries` ties each entry to the message types of the same method; Object.entries loses that tie.
    const entry = entries[key] as Entry<unknown, unknown>
    const types = {
      request: method.requestType as MessageType<unknown>,
      response: method.responseType as MessageType<unknown>,
    }
    methods.set(name, wrap(name, types, entry, dependencies))
  }
  return methods
}

/** Several services behind one port. */
export function mergeTables(...tables: readonly MethodTable[]): MethodTable {
  return new Map(tables.flatMap((table) => [...table]))
}
