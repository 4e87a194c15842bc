/** A TCP address. */
export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** Undefined for what is no `HOST:PORT` or `[IPV6]:PORT`. */
export function parseEndpoint(text: string): Endpoint | undefined {
  const [, bracketed, plain, port = ''] =
    /^(?:\[([0-9A-Fa-f:.%a-z]{2,64})\]|([A-Za-z0-9.-]{1,253})):(\d{1,5})$/.exec(text) ?? []
  const host = bracketed ?? plain
  if (host === undefined || Number(port) < 1 || Number(port) > 65_535) return undefined
  return { host, port: Number(port) }
}

export function endpointText({ host, port }: Endpoint): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}
