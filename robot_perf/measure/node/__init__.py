"""The part of the ROS 2 node that is not ROS: parameters, topic mapping, mailbox, command, loop, blocks. Tested without rclpy.

The node is a worker: it runs `robot_perf.measure.step` and fills step maps. Its keeper (`robot_perf.tasks.node.keeper`) reads them.
"""
