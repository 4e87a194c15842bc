import type { Server as HttpServer } from 'node:http'
import type { TLSSocket } from 'node:tls'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Credentials, Peer } from '../tls/credentials.ts'
import { type Endpoint, endpointText } from '../tls/endpoint.ts'
import { listenForHosts } from '../tls/listen-hosts.ts'
import { Connections } from './connections.ts'
import { Hosts } from './hosts.ts'
import { Leases } from './leases.ts'
import { controllerMethods } from './methods.ts'
import { ControllerMetrics } from './metrics.ts'
import { EtcdClient, type EtcdOptions } from './store/etcd-client.ts'
import { VmRecords } from './store/vm-records.ts'
import { MigrationTargets } from './target/ensure-target.ts'
import { targetHosts } from './target/target-host.ts'
import { VmWatch } from './vm-watch.ts'
import { Vms } from './vms.ts'

export interface ControllerOptions {
  readonly etcd: Pick<EtcdOptions, 'endpoints' | 'tls'>
  readonly listen: Endpoint
  readonly credentials: Credentials
  /** Where metrics are served over HTTP; nowhere when undefined. */
  readonly metrics?: Endpoint | undefined
  readonly log: Logger
}

export interface Controller {
  /** Stops serving. The VMs go on, and so does what etcd keeps of them. */
  close(): Promise<void>
}

/**
 * Serves VMController and ControllerService for hosts. It keeps nothing itself: any number of controllers serve the same VMs, which
 * are in etcd. Rejects with FAILED_PRECONDITION when it cannot listen; etcd may answer later.
 */
export async function startController(options: ControllerOptions): Promise<Controller> {
  const { credentials, listen, log } = options
  const metrics = new ControllerMetrics()
  const etcd = new EtcdClient({
    ...options.etcd,
    onCall: (seconds, code) => metrics.countEtcd(seconds, code),
  })
  // The watch has a connection of its own: when it leaves a member, calls that go well stay.
  const watched = new EtcdClient(options.etcd)
  const records = new VmRecords(etcd)
  const hosts = new Hosts(etcd, log)
  const watch = new VmWatch({ records, etcd: watched, log })
  const declared = controllerMethods({
    hosts,
    vms: new Vms({ records, etcd, log }),
    leases: new Leases({ records, etcd, log }),
    targets: new MigrationTargets({ records, hosts, targetHosts: targetHosts(credentials), log }),
    watch,
  })
  const connections = new Connections({ declared, metrics, log })
  const closeWatch = async () => {
    const ended = watch.close()
    watched.close()
    await ended
  }
  try {
    const serve = (socket: TLSSocket, peer: Peer) => connections.serve(socket, peer)
    const server = await listenForHosts(listen, { credentials, log, serve })
    const exporter = await serveMetrics(options.metrics, () => metrics.print(watch.streams)).catch(
      (error) => {
        server.close()
        throw error
      },
    )
    log.info('serving', {
      listen: endpointText(listen),
      etcd: options.etcd.endpoints.map(endpointText).join(','),
    })
    return {
      close: async () => {
        const closed = [server, exporter].map((each) => each && new Promise((resolve) => each.close(resolve)))
        connections.close()
        await Promise.all([closeWatch(), ...closed])
        etcd.close()
      },
    }
  } catch (error) {
    await closeWatch()
    etcd.close()
    throw error
  }
}

async function serveMetrics(
  endpoint: Endpoint | undefined,
  print: () => string,
): Promise<HttpServer | undefined> {
  if (endpoint === undefined) return undefined
  // An import would load all that it exports, WebSocket too, which takes 3 MiB.
  const { createServer } = process.getBuiltinModule('node:http')
  const server = createServer((request, response) => {
    const isKnown = request.url === '/metrics' && request.method === 'GET'
    response.writeHead(isKnown ? 200 : 404, {
      'content-type': 'text/plain; version=0.0.4',
      connection: 'close',
    })
    response.end(isKnown ? print() : 'want GET /metrics\n')
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      const text = `metrics ${endpointText(endpoint)}: ${errnoOf(error) ?? messageOf(error)}`
      reject(new AgentError('FAILED_PRECONDITION', text))
    })
    server.listen({ ...endpoint }, resolve)
  })
  return server
}
