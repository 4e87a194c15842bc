import { Server, ServerCredentials } from '@grpc/grpc-js'

/** A bare grpc-js server that answers empty calls on the unix socket of argument 1. */
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
  process.stdout.write('up\n')
})
// An ordinary exit writes the compile cache.
process.once('SIGTERM', () => process.exit())
