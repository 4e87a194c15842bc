import { Server, ServerCredentials } from '@grpc/grpc-js'

/** A grpc-js server and nothing else: argument 1 is the unix socket it answers empty calls on. */
const server = new Server()
const same = (bytes: Buffer) => bytes
server.register(
  '/grpc.Health/Check',
  (_call: unknown, answer: (error: null, response: Buffer) => void) => answer(null, Buffer.alloc(0)),
  same,
  same,
  'unary',
)
server.bindAsync(`unix:${process.argv[2]}`, ServerCredentials.createInsecure(), (error) => {
  if (error !== null) throw error
})
