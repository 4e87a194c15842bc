import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { type HostStreams, type HostStreamsConfig, hostPort } from './host-streams.ts'

/** How the kernel says that nobody listens: a host answers a vsock dial with a reset, or not at all. */
const NOBODY_LISTENS = ['ECONNRESET', 'ETIMEDOUT', 'ECONNREFUSED', 'ENOENT']

/** Gets each connection by dialling the host. */
export function dialHost(
  os: Os,
  config: Pick<HostStreamsConfig, 'dial' | 'dialTimeoutMs'>,
): HostStreams['connect'] {
  return async (port, stream, signal) => {
    try {
      return await dial(os, config, port, signal)
    } catch (error) {
      if (signal.aborted) throw error
      const errno = errnoOf(error)
      const isNobody = errno !== undefined && NOBODY_LISTENS.includes(errno)
      const what = isNobody ? 'nobody listens on' : 'no connection to'
      const text = `${stream}: ${what} the host's port ${port}`
      throw new AgentError('INTERNAL', text, { cause: error, ...(errno === undefined ? {} : { errno }) })
    }
  }
}

async function dial(
  { clock, hostSockets }: Os,
  config: Pick<HostStreamsConfig, 'dial' | 'dialTimeoutMs'>,
  port: number,
  signal: AbortSignal,
): Promise<Fd> {
  const { dialTimeoutMs } = config
  const late = new AbortController()
  const done = new AbortController()
  clock.sleep(dialTimeoutMs, done.signal).then(
    () =>
      late.abort(
        new AgentError('INTERNAL', `no answer within ${dialTimeoutMs / 1000} s`, { errno: 'ETIMEDOUT' }),
      ),
    () => {},
  )
  try {
    const either = AbortSignal.any([signal, late.signal])
    return await hostSockets.connect(hostPort(config.dial, port), dialTimeoutMs, either)
  } finally {
    done.abort()
  }
}
