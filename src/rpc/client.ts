import type { CallOptions, TtrpcClient } from './ttrpc/client.ts'

/** Typed methods, named as in the definition. A request may leave out fields that have their default value. */
export function clientFor<Definition extends ServiceDefinition>(
  definition: Definition,
  connection: Pick<TtrpcClient, 'call'>,
): ServiceClient<Definition> {
  const methods = Object.entries(definition.methods).map(([key, method]) => [
    key,
    (request: never, options?: CallOptions) =>
      callMethod(connection, definition.fullName, method, request, options),
  ])
  // The keys, requests and responses are those of the definition; fromEntries loses their types.
  return Object.fromEntries(methods) as ServiceClient<Definition>
}

/** The part of ts-proto's service definitions that a client needs. */
export interface ServiceDefinition {
  readonly fullName: string
  readonly methods: { readonly [key: string]: MethodDefinition }
}

interface MethodDefinition {
  readonly name: string
  readonly requestType: {
    // `never`, because each method has a message type of its own.
    fromPartial(request: never): unknown
    encode(message: never): { finish(): Uint8Array }
  }
  readonly responseType: { decode(payload: Uint8Array): unknown }
}

export type ServiceClient<Definition extends ServiceDefinition> = {
  readonly [Key in keyof Definition['methods']]: (
    request: Parameters<Definition['methods'][Key]['requestType']['fromPartial']>[0],
    options?: CallOptions,
  ) => Promise<ReturnType<Definition['methods'][Key]['responseType']['decode']>>
}

async function callMethod(
  connection: Pick<TtrpcClient, 'call'>,
  service: string,
  { name, requestType, responseType }: MethodDefinition,
  request: never,
  options: CallOptions | undefined,
): Promise<unknown> {
  // `fromPartial` returns the message that `encode` of the same type takes.
  const message = requestType.fromPartial(request) as never
  const payload = requestType.encode(message).finish()
  return responseType.decode(await connection.call(service, name, payload, options))
}
