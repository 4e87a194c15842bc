import { Client, credentials } from '@grpc/grpc-js'

export interface Peer {
  call(): Promise<unknown>
  close(): void
}

export function grpcPeer(socket: string): Peer {
  const client = new Client(`unix:${socket}`, credentials.createInsecure())
  const same = (bytes: Buffer) => bytes
  const empty = Buffer.alloc(0)
  return {
    call: () =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest('/grpc.Health/Check', same, same, empty, (error, response) => {
          if (error === null) resolve(response)
          else reject(error)
        })
      }),
    close: () => client.close(),
  }
}
